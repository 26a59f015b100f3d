"""How often a training of your own should save."""
