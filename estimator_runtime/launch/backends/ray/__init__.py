"""The Ray back end: every task is a process on a node of a Ray cluster."""
