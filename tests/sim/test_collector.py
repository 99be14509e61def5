"""Python's garbage collector around work that makes many objects."""

import gc
import weakref

import pytest

from accelopt.sim.garbage_collection import collector_paused


def test_what_was_made_meanwhile_is_old_and_the_collector_runs_again():
    with collector_paused():
        assert not gc.isenabled()
        made = [[number] for number in range(10_000)]
    assert gc.isenabled()
    old = {id(item) for item in gc.get_objects(generation=2)}
    assert all(id(item) in old for item in made)


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.slow
def test_garbage_is_still_found():
    class Node:
        """Something that can refer to itself."""

    with collector_paused():
        node = Node()
        node.own = node
        left = weakref.ref(node)
        del node
    gc.collect()
    assert left() is None
