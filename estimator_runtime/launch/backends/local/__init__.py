"""The local back end: every task is a process of this machine."""
