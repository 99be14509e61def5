"""What is not the same is not merged. Evidence: none measured; the arithmetic of addresses."""

import pytest
from timing_kernels import timed

from accelopt.sim.dialects.neuronxcc import language as nl


def pairs(x, second):
    """The sum of two functions of interleaved columns, of which the second begins at `second`."""
    out = nl.ndarray((4, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    for i in nl.affine_range(4):
        row = nl.load(x[i])
        nl.store(out[i], nl.add(nl.exp(row[p, 2 * f]), nl.exp(row[p, 2 * f + second])))
    return out


@pytest.mark.parametrize(("second", "exponentials"), [(0, 4), (1, 8)])
def test_even_and_odd_columns_of_one_tile_are_not_the_same(second, exponentials):
    """A rotary embedding of interleaved pairs lost half of its work to this."""
    found = timed(pairs, (4, 128, 128), second)
    kinds = [item.operation.label or item.operation.opcode for item in found.run.stream.instances]
    done = sum("exp" in kinds[kind] for kind in found.run.stream.kind)
    assert done == exponentials
