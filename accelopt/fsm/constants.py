"""The published constants of the two machines."""

from __future__ import annotations

WORKERS_SECONDS = 1800.0  # that the workers of one round have together
TERMINATE_SECONDS, KILL_SECONDS = 5.0, 2.0  # that a process has after each signal
TEST_SECONDS = 30.0  # of the user's own test
MOST_REFINEMENTS = 3
MOST_SHARED = 10  # attempts and reflexions that the manager hands to its workers
LONGEST_ERROR = 2000  # characters of an attempt's error
LEAST_CHARACTERS = 100  # of a generated kernel
DIVERGENCE_PERCENT = 50.0  # slower than the best: the best is the current kernel again
MOST_BOTTLENECKS = 4  # that a judge is asked for
TOP_KERNELS = 5
