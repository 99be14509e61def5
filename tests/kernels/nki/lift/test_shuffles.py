"""nc_stream_shuffle as index arithmetic (SDK 2.32: partition p of each 32 takes partition table[p], 255
keeps it): exact for every table, and in closed form for those that kernels write."""

import numpy as np
import pytest
from kernel_heads import nki_of
from lifted_text import lifted, traced

from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift

KERNEL = nki_of("a")("""
t, u = nl.load(a), nl.load(a)
nisa.nc_stream_shuffle(dst=u, src=t{part}, shuffle_mask={table})
nl.store(out, u)
""")
TABLES = {
    "one row": [0] * 32,
    "rotated": [(n + 1) % 32 for n in range(32)],
    "backwards": [*range(31, -1, -1)],
    "pairs": [n ^ 1 for n in range(32)],
    "groups": [n // 8 * 8 for n in range(32)],
    "some kept": [255 if n % 3 else n for n in range(32)],
    "any": [int(n) for n in np.random.default_rng(2).permutation(32)],
}
A = np.random.default_rng(1).normal(size=(64, 8)).astype(np.float32)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_partitions_is_an_index(name: str) -> None:
    text = KERNEL.format(part="", table=TABLES[name])
    _, found, expected = lifted(text, [A])
    assert np.array_equal(found.astype(np.float32), expected)


def test_partitions_that_the_source_does_not_have_have_no_algorithm() -> None:
    text = KERNEL.format(part="[0:16]", table=[*range(32)])
    program = traced(text, [A])
    with pytest.raises(NotLifted, match="partitions that its source does not have"):
        lift(program)


ROW_ON_ALL_PARTITIONS = nki_of("a, g")("""
row, rows = nl.load(g), nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
for q in range(2):
    nisa.nc_stream_shuffle(dst=rows[q * 32:(q + 1) * 32, :], src=row, shuffle_mask=[0] * 32)
nl.store(out, nl.multiply(nl.load(a), rows))
""")


def test_a_row_on_all_partitions_has_a_closed_form() -> None:
    """The idiom of the vendor's stream_shuffle_broadcast (SDK 2.33, kernel utilities)."""
    program = traced(ROW_ON_ALL_PARTITIONS, [A, A[:1]])
    assert "out[m, n] = a[m, n] * g[n]" in algorithm_text(lift(program))
