"""The output of one process: its log, its progress bar and TensorBoard."""
