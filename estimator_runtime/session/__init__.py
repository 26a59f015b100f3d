"""RunConfig and MonitoredTrainingSession: which session creator, which hooks."""
