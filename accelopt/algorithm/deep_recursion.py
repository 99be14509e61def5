"""Recursion as deep as the operations of a long kernel build on each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

DEEPEST = 20_000
"""Python frames that composing may take."""


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Lets composition go as deep as long kernels need."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
