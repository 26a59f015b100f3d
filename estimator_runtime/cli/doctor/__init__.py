"""`estimator-runtime doctor`: what keeps a training from starting here, and the remedy.

Nothing here imports TensorFlow. A child process does, with a deadline; see `probe`.
"""
