"""Random damage to model directories and jobs; see `__main__`."""
