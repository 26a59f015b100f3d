"""Restore of checkpoints: choose the one to resume from, and restore it."""
