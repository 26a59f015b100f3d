"""Supervision of the tasks of one job, from their start to its outcome."""
