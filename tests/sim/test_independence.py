"""Whether parallel iterations need each other, decided from the addresses alone.

Evidence: SDK 2.26.1 documentation of nl.affine_range ("iterations can run in any order and in
parallel, loop-carried dependences are not allowed") and of SPMD launches, whose programs are unordered.
"""

import numpy as np
import pytest

from accelopt.sim.independence import dependences

X = np.zeros((512, 256), np.float32)
DEPENDENT = {
    "the one before": """
        tiles = nl.zeros((5, nl.par_dim(128), 256), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            tiles[i + 1] = nl.load(x[i * 128 : (i + 1) * 128, :])
            nl.store(out[i * 128 : (i + 1) * 128, :], nl.copy(tiles[i]))
        """,
    "a shared slot": """
        # Two iterations read and write one slot, which neither writes first.
        sums = nl.zeros((3, nl.par_dim(128), 1), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            tile = nl.load(x[i * 128 : (i + 1) * 128, :])
            both = nl.multiply(sums[(i + 1) // 2], nl.max(tile, axis=1, keepdims=True))
            sums[(i + 1) // 2] = nl.copy(both)
            nl.store(out[i * 128 : (i + 1) * 128, :], tile)
        """,
    "overlapping columns": """
        line = nl.zeros((nl.par_dim(128), 260), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            line[:, i * 64 : (i + 1) * 64] = nl.load(x[0:128, i * 64 : (i + 1) * 64])
            seen = nl.copy(line[:, i * 64 + 1 : (i + 1) * 64 + 1])
            nl.store(out[0:128, i * 64 : (i + 1) * 64], seen)
        """,
    "by an inner loop": """
        # The element that another iteration writes is reached in the last step of an inner loop only.
        tiles = nl.zeros((17, nl.par_dim(128), 64), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            for j in nl.affine_range(4):
                tiles[i * 4 + j] = nl.load(x[i * 128 : (i + 1) * 128, j * 64 : (j + 1) * 64])
            for j in nl.affine_range(4):
                seen = nl.copy(tiles[i * 4 + j + 1])
                nl.store(out[i * 128 : (i + 1) * 128, j * 64 : (j + 1) * 64], seen)
        """,
    "programs": """
        ahead = nl.ndarray((640, 256), dtype=x.dtype, buffer=nl.shared_hbm)
        p = nl.program_id(0)
        r, c = nl.mgrid[0:128, 0:256]
        nl.store(ahead[r, c], nl.load(x[r, c]), mask=(p < 1))
        nl.store(out[p * 128 + r, c], nl.load(ahead[p * 128 + r, c]))
        nl.store(ahead[p * 128 + 128 + r, c], nl.load(x[p * 128 + r, c]))
        """,
}
INDEPENDENT = {
    "in order": DEPENDENT["the one before"].replace("affine_range", "sequential_range"),
    "a sum": """
        total = nl.zeros((128, 256), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            total += nl.load(x[i * 128 : (i + 1) * 128, :])
        nl.store(out[0:128, :], total)
        """,
    "its own slot": """
        # Several iterations use a slot, each writes it before it reads it.
        slots = nl.ndarray((3, nl.par_dim(128), 256), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            slots[(i + 1) // 2] = nl.load(x[i * 128 : (i + 1) * 128, :])
            nl.store(out[i * 128 : (i + 1) * 128, :], nl.copy(slots[(i + 1) // 2]))
        """,
    "halves": """
        # Reads of one half, writes of the other.
        tiles = nl.zeros((8, nl.par_dim(128), 256), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            tiles[i + 4] = nl.load(x[i * 128 : (i + 1) * 128, :])
            nl.store(out[i * 128 : (i + 1) * 128, :], nl.add(tiles[i], tiles[i + 4]))
        """,
    "a mask": """
        # Rows past a mask belong to the next iteration, and are not touched.
        line = nl.zeros((nl.par_dim(128), 320), dtype=x.dtype, buffer=nl.sbuf)
        p, f = nl.mgrid[0:128, 0:80]
        for i in nl.affine_range(4):
            line[p, i * 64 + f] = nl.load(x[p, i * 64 + f], mask=(f < 64) & (i * 64 + f < 256))
            seen = nl.copy(line[:, i * 64 : (i + 1) * 64])
            nl.store(out[0:128, i * 64 : (i + 1) * 64], seen)
        """,
    "two loops": """
        tiles = nl.ndarray((4, nl.par_dim(128), 256), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            tiles[i] = nl.load(x[i * 128 : (i + 1) * 128, :])
        for i in nl.affine_range(4):
            nl.store(out[i * 128 : (i + 1) * 128, :], nl.copy(tiles[3 - i]))
        """,
}


@pytest.mark.parametrize("name", [*DEPENDENT, *INDEPENDENT])
def test_iterations_that_need_each_other_are_told_and_others_left_alone(kernel_text, name):
    kernel = kernel_text.of("x")((DEPENDENT | INDEPENDENT)[name]).kernel
    program = kernel_text.traced(kernel, (X,), {}, grid=(4,) if name == "programs" else None)
    told = [str(one) for one in dependences(program)]
    assert len(told) == (name in DEPENDENT)
    assert all("reads at" in one and "writes to" in one for one in told)
