"""The published constants of the two machines."""

from __future__ import annotations

MOST_REFINEMENTS = 3
MOST_SHARED = 10  # attempts and reflexions that the manager hands to its workers
LONGEST_ERROR = 2000  # characters of an attempt's error
LEAST_CHARACTERS = 100  # of a generated kernel
DIVERGENCE_PERCENT = 50.0  # slower than the best: the best is the current kernel again
MOST_BOTTLENECKS = 4  # that a judge is asked for
TOP_KERNELS = 5
