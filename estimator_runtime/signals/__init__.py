"""Stops by SIGTERM and Ctrl-C: a training ends its step, saves and exits."""
