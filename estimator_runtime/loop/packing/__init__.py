"""Packing: combines the tensors that tasks send each other in a step into fewer."""
