"""States that a loop carries side by side, in parts that its author unrolled: exact by the simulated core."""

import numpy as np
import pytest
from kernel_heads import nki_of
from lifted_text import lifted

from accelopt.algorithm.ir import Apply, parts_in
from accelopt.algorithm.notation import algorithm_text

COUNTS = nki_of("x", shape="(128, 4)", dtype="nl.float32")("""
counts = nl.zeros((128, 4), dtype=nl.float32, buffer=nl.sbuf)
for t in range(x.shape[0] // 128):
    tile = nl.load(x[t * 128:(t + 1) * 128, :])
    for b in range(4):
        above = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=above, data=tile, op0=nl.greater, operand0=0.5 * b)
        n = nl.sum(above, axis=1, keepdims=True)
        nisa.tensor_tensor(dst=counts[:, b:b + 1], data1=counts[:, b:b + 1], data2=n, op=nl.add)
nl.store(out, counts)
""")
"""A sum for each of four columns, which one loop carries."""
LEFT = nki_of("x", shape="(x.shape[0], 1)", dtype="nl.float32")("""
rows, steps = x.shape
for r in range(rows // 128):
    tile = nl.load(x[r * 128:(r + 1) * 128, :])
    left = nl.ones((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for t in range(steps):
        taken = nl.multiply(tile[:, t:t + 1], left)
        nisa.tensor_tensor(dst=left, data1=left, data2=taken, op=nl.subtract)
        nisa.tensor_scalar(dst=taken, data=taken, op0=nl.multiply, operand0=tile[:, t:t + 1])
        nisa.tensor_tensor(dst=total, data1=total, data2=taken, op=nl.add)
    nl.store(out[r * 128:(r + 1) * 128, :], total)
""")
"""A sum over what another state of the loop, a recurrence, leaves."""
HALVES = nki_of("x", shape="(128, 64)", dtype="nl.float32")("""
sums = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum)
tiles = [nl.load(x[k * 128:(k + 1) * 128, :]) for k in range(4)]
for half in range(2):
    rows = slice(64 * half, 64 * half + 64)
    for k in range(4):
        nisa.nc_matmul(dst=sums[rows, :], stationary=tiles[k][:, rows], moving=tiles[k][:, 128:192], accumulate=k > 0)
nl.store(out, nl.copy(sums))
""")
"""Two loops over the same steps, each of which sums half of the rows."""
PARTS = nki_of("x", shape="(128, 1)", dtype="nl.float32")("""
tile = nl.load(x[0:128, :])
sums = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
nisa.nc_matmul(dst=sums, stationary=tile[:, 0:128], moving=tile[:, 64:192])
most = nl.max(nl.copy(sums), axis=1, keepdims=True)
first = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
nisa.tensor_scalar(dst=first, data=sums[:, 3:4], op0=nl.equal, operand0=most)
nl.store(out, first)
""")
"""One element of a product beside the largest of it: the same product."""
STEPS = nki_of("x", shape="(128, 24)", dtype="nl.float32")("""
tile = nl.load(x[0:128, 0:24])
state = nl.ndarray((128, 24), dtype=nl.float32, buffer=nl.sbuf)
nisa.tensor_copy(dst=state[:, 0:1], src=tile[:, 0:1])
for t in range(1, 24):
    kept = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=kept, data1=state[:, t - 1:t], data2=tile[:, t:t + 1], op=nl.multiply)
    nisa.tensor_tensor(dst=state[:, t:t + 1], data1=kept, data2=tile[:, t:t + 1], op=nl.add)
nl.store(out, state)
""")
"""The states of a recurrence themselves, none of which is computed of the one before again."""
CHUNKS = nki_of("x", shape="(128, 192)", dtype="nl.float32")("""
states = [nl.load(x[0:128, 0:1]), nl.zeros((128, 1), dtype=nl.float32), nl.zeros((128, 1), dtype=nl.float32)]
kept = nl.full((128, 48), 0.5, dtype=nl.float32)
for t in range(4):
    term = nl.load(x[0:128, 48 * t:48 * t + 48])
    for state in states:
        scan = nl.ndarray((128, 48), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor_scan(dst=scan, data0=kept, data1=term, initial=state, op0=nl.multiply, op1=nl.add)
        nisa.tensor_copy(dst=state, src=scan[:, 47:48])
        term = nl.subtract(scan, term)
    nl.store(out[0:128, 48 * t:48 * t + 48], term)
""")
"""Recurrences of recurrences, each of which goes on where the chunk before ended."""
GIVEN = np.random.default_rng(7).normal(size=(512, 192)).astype(np.float32)


@pytest.mark.parametrize(
    ("text", "definitions"), [(COUNTS, 1), (LEFT, 2), (HALVES, 1), (PARTS, 3), (STEPS, 2),
        (CHUNKS, 4)],
    ids=["counts", "left", "halves", "parts", "steps", "chunks"],
)  # fmt: skip
def test_states_side_by_side_lift(text: str, definitions: int) -> None:
    given = GIVEN if text not in (LEFT, STEPS) else GIVEN[:, :24].copy() * 0.3
    algorithm, found, expected = lifted(text, [given])
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert len(algorithm.definitions) == definitions, algorithm_text(algorithm)
    assert text != STEPS or not any(
        isinstance(p, Apply) for p in parts_in(algorithm.definitions[-1])
    )
