"""Kernels that leave elements of their input (256, 64) out."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def summing(part, rows=2):
    """A kernel that adds what `part` makes of each tile of 128 rows."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        parts = nl.zeros((128, rows), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(rows):
            parts[:, i] = part(nl.load(x[i * 128 : (i + 1) * 128, :]), i)
        nl.store(out, nl.sum(parts, axis=1, keepdims=True))
        return out

    return kernel


def whole(tile, i):
    return nl.sum(tile, axis=1)


def all_but_a_column(tile, i):
    return nl.add(nl.sum(tile[:, 0:20], axis=1), nl.sum(tile[:, 21:64], axis=1))


def all_but_one_element(tile, i):
    i_p, i_f = nl.mgrid[0:128, 0:64]
    before = i * 8192 + i_p * 64 + i_f < 9000
    after = i * 8192 + i_p * 64 + i_f > 9000
    return nl.add(nl.sum(tile, axis=1, mask=before), nl.sum(tile, axis=1, mask=after))


def of_one_triangle(tile, i):
    i_p, i_f = nl.mgrid[0:128, 0:64]
    return nl.sum(nisa.affine_select(i_f - i_p >= 0, tile, 0.0), axis=1)


@nki.jit
def reading_for_nothing(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    first, second = nl.load(x[0:128, :]), nl.load(x[128:256, :])
    nl.exp(second)  # of which nothing is stored
    nl.store(out, nl.exp(first))
    return out


@nki.jit
def picking(x, rows):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    index = nl.load(rows)
    nl.store(out, nl.load(x[index[nl.arange(128)[:, None], 0], nl.arange(64)[None, :]]))
    return out


LEAVING = {
    "nothing": summing(whole),
    "a column": summing(all_but_a_column),
    "an element": summing(all_but_one_element),
    "triangles": summing(of_one_triangle),
    "rows that are not loaded": summing(whole, rows=1),
    "rows that are read for nothing": reading_for_nothing,
}
