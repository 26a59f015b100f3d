"""What the frozen tensorflow-estimator package is given to run on today's TensorFlow."""
