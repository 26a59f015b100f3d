"""What a training step costs: alone, with logging, and with a parameter server."""
