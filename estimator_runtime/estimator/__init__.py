"""What the frozen tensorflow-estimator package is given on today's TensorFlow."""
