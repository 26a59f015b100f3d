"""Graphs that an Estimator keeps from one call to the next."""
