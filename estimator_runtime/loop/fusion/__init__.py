"""Several training steps as one call of TensorFlow's session."""
