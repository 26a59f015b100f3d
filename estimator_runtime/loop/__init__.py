"""The step loop behind MonitoredTrainingSession: stock's semantics, less overhead."""
