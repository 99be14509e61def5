"""Python text is parsed by any thread: CPython 3.11 alone ends such in a SystemError within milliseconds."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from accelopt.parsing import parse_expression, parse_python

TEXT = "(" * 15 + "1" + " + 1)" * 15 + f" + sum({[*range(300)]})"


class Cycle:
    """Garbage whose end lets another thread in."""

    def __del__(self):
        sum(range(50))


@pytest.fixture
def hasty():
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(1)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


@pytest.mark.parametrize("parse", [parse_python, parse_expression])
def test_threads_that_parse_at_once_all_get_their_tree(hasty, parse):
    def many(_):
        for _ in range(40):
            garbage = Cycle()
            garbage.itself = garbage
            del garbage
            parse(TEXT)

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(many, range(4))] == [None] * 4
