"""Where the tasks of a job run: on this machine, on Ray or on Kubernetes."""
