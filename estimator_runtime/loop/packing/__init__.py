"""Packing: the tensors that cross between tasks in a step, sent as fewer and larger."""
