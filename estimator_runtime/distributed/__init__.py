"""The work of each task of a cluster, and when the task may end."""
