"""The content of a checkpoint, and how it is written while training continues."""
