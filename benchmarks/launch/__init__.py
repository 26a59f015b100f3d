"""How long a job takes until all of its tasks train."""
