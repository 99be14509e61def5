"""Which elements of a kernel's inputs reach no result, told from a Program's addresses."""

import numpy as np
import pytest
from kernel_lines import writing_of

from accelopt.sim.unused_inputs import unused

X = np.zeros((256, 64), np.float32)
BELOW = [(r, c) for r in range(128, 256) for c in range(64)]
SUMS = writing_of("x", shape="(128, 1)")("""
parts = nl.zeros((128, {rows}), dtype=nl.float32, buffer=nl.sbuf)
i_p, i_f = nl.mgrid[0:128, 0:64]
for i in nl.affine_range({rows}):
    tile = nl.load(x[i * 128 : (i + 1) * 128, :])
    place = i * 8192 + i_p * 64 + i_f
    parts[:, i] = {part}
nl.store(out, nl.sum(parts, axis=1, keepdims=True))
""")
WHOLE = "nl.sum(tile, axis=1)"
COLUMNS = "nl.add(nl.sum(tile[:, 0:20], axis=1), nl.sum(tile[:, 21:64], axis=1))"
ELEMENTS = (
    "nl.add(nl.sum(tile, axis=1, mask=place < 9000), nl.sum(tile, axis=1, mask=place > 9000))"
)
TRIANGLE = "nl.sum(nisa.affine_select(i_f - i_p >= 0, tile, 0.0), axis=1)"
READ_FOR_NOTHING = writing_of("x", shape="(128, 64)")("""
first, second = nl.load(x[0:128, :]), nl.load(x[128:256, :])
nl.exp(second)  # of which nothing is stored
nl.store(out, nl.exp(first))
""")
LEAVING = {
    "nothing": (SUMS.format(rows=2, part=WHOLE), []),
    "a column": (SUMS.format(rows=2, part=COLUMNS), [(row, 20) for row in range(256)]),
    "an element": (SUMS.format(rows=2, part=ELEMENTS), [divmod(9000, 64)]),
    "triangles": (
        SUMS.format(rows=2, part=TRIANGLE),
        [(r, c) for r in range(256) for c in range(64) if c < r % 128],
    ),
    "rows that are not loaded": (SUMS.format(rows=1, part=WHOLE), BELOW),
    "rows that are read for nothing": (READ_FOR_NOTHING, BELOW),
}


@pytest.mark.parametrize("name", LEAVING)
def test_what_reaches_no_result(kernel_text, name):
    text, expected = LEAVING[name]
    program = kernel_text(text).trace(X)
    (found,) = unused(program)
    places = [] if found is None else [tuple(map(int, place)) for place in np.argwhere(found)]
    assert places == expected


def test_what_an_index_of_the_run_picks_counts_as_used(kernel_text):
    picking = kernel_text.of("x, rows", shape="(128, 64)")("""
        index = nl.load(rows)
        nl.store(out, nl.load(x[index[nl.arange(128)[:, None], 0], nl.arange(64)[None, :]]))
        """)
    program = picking.trace(X, np.zeros((128, 1), np.int32))
    assert unused(program) == (None, None)
