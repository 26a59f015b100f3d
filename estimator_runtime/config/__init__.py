"""What a process is given, read without TensorFlow: its settings and its memory."""
