"""For tools that start from setup.py; everything it says is in setup.cfg."""

from setuptools import setup

setup()
