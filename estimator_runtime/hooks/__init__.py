"""Session hooks of this runtime."""
