"""The benchmarks are not installed: they are found in the checkout."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
# At the end: the package under test stays the one that is installed.
sys.path.append(str(ROOT))
