"""Graphs and sessions of an Estimator, kept from one evaluation to the next."""
