"""Storage of checkpoints: files, state file, retention and locks."""
