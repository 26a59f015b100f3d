"""`estimator-runtime doctor`: what keeps a training from starting here, and the remedy.

Nothing here imports TensorFlow; a child process asks it, with a deadline (`probe`).
"""
