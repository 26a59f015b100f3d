"""The hooks that a session of this runtime adds to those of the program."""
