"""Hooks that this runtime adds to a session, next to those of the program."""
