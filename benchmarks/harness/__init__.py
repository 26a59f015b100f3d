"""Measures contenders in one interleaved run, and shows the figures."""
