"""Kept for `python setup.py` and old pip users; everything is declared in pyproject.toml."""

from setuptools import setup

setup()
