"""What setup.cfg cannot say: the page of the package index, made of README.md."""

import pathlib
import re
import sys

from setuptools import setup

# pip says only that the versions of a constraints file conflict, and names no Python.
if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit(
        "estimator_runtime needs Python 3.10 to 3.13, and this is "
        f"{sys.version_info[0]}.{sys.version_info[1]} ({sys.executable}); make a "
        "virtual environment with one of those"
    )

readme = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
# The index shows the README without the repository: of a link into it the text stays,
# of a picture nothing.
readme = re.sub(r"\s*!\[[^]]*\]\((?!https?:)[^)]*\)", "", readme)
readme = re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", readme)
setup(long_description=readme)
