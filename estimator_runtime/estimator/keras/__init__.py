"""Keras 2 for Estimators, and clear errors where a program uses Keras 3."""
