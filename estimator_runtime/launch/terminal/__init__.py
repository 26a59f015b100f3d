"""The terminal output of a job: task lines, status rows and progress bars."""
