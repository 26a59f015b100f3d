"""TensorFlow 1 mode: the program's `import tensorflow` gives the TensorFlow 1 API."""
