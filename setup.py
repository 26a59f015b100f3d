"""What setup.cfg cannot say: the page of the package index, made of README.md."""

import pathlib
import re

from setuptools import setup

readme = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
# The index shows the README without the repository: of a link into it the text stays,
# of a picture nothing.
readme = re.sub(r"\s*!\[[^]]*\]\((?!https?:)[^)]*\)", "", readme)
readme = re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", readme)
setup(long_description=readme)
