"""Names that TensorFlow has removed, for the frozen package and its users."""
