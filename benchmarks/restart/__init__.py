"""What a restart costs: time to restore, and memory."""
