"""Programs as users' go: what a test executes has passed through the bytes between two processes."""

import numpy as np

from accelopt.sim import compute, serial
from accelopt.sim.compute.executor import Executable


def execute(program, arrays, **options):
    """`compute.execute` of the Program that another process has."""
    return compute.execute(serial.transferred(program), arrays, **options)


def executable(program, **options):
    """The same Program compiled, with so many threads or so little work in a loop that is split."""
    return Executable(serial.transferred(program), **options)


def assert_threads_change_nothing(program, arrays):
    """The results to every bit, by one thread and by two that share each loop which may be split;
    how many loops were."""
    results = []
    for threads in (1, 2):
        compiled = executable(program, threads=threads, least_work=0)
        found = compiled.run([np.array(array) for array in arrays])
        results.append([None if array is None else array.tobytes() for array in found])
    assert results[0] == results[1]
    return len(compiled._split)
