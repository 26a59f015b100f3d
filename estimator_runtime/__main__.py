"""`python -m estimator_runtime`: the same as the command `estimator-runtime`."""

import sys

from estimator_runtime.cli import main

if __name__ == "__main__":
    sys.exit(main())
