"""The step loop of MonitoredTrainingSession: TensorFlow's semantics, less overhead."""
