"""Rows that the last tile is not full of, combined partition by partition: one reduction over all rows."""

import numpy as np
import pytest
from kernel_heads import nki_of
from lifted_text import lifted

from accelopt.algorithm.notation import algorithm_text

KERNEL = nki_of("x", shape="(1, x.shape[1])", dtype="nl.float32")("""
R, C = x.shape
acc = nl.full((128, C), {neutral}, dtype=nl.float32, buffer=nl.sbuf)
for t in range((R + 127) // 128):
    rows = min(128, R - t * 128)
    tile = nl.load(x[t * 128:t * 128 + rows, :])
    nisa.tensor_tensor(dst=acc[0:rows, :], data1=acc[0:rows, :], data2=nl.square(tile), op=nl.{op})
turned = nl.ndarray((C, 128), dtype=nl.float32, buffer=nl.psum)
nisa.nc_transpose(dst=turned, data=acc)
column = nl.ndarray((C, 1), dtype=nl.float32, buffer=nl.sbuf)
nisa.tensor_reduce(dst=column, data=turned, axis=1, op=nl.{op}, keepdims=True)
row = nl.ndarray((1, C), dtype=nl.float32, buffer=nl.psum)
nisa.nc_transpose(dst=row, data=column)
nl.store(out, nl.copy(row))
""")


@pytest.mark.parametrize("rows", [263, 384, 100])
@pytest.mark.parametrize(("op", "neutral"), [("add", "0.0"), ("maximum", "-1e38")])
def test_tiles_and_partitions_are_one_axis_of_rows(rows: int, op: str, neutral: str) -> None:
    x = np.random.default_rng(4).normal(size=(rows, 32)).astype(np.float32)
    algorithm, exact, found = lifted(KERNEL.format(op=op, neutral=neutral), [x])
    np.testing.assert_allclose(found, exact, rtol=1e-5)
    (total,) = algorithm.definitions
    assert [axis.extent for axis in total.reduced] == [rows], algorithm_text(algorithm)
