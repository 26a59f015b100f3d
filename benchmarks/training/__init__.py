"""The models that are trained, and the ways to train them."""
