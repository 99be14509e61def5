"""Rotary embedding, 512 tokens at a time; the two halves of the head are separate tiles."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    """x (D, tokens), cos and sin (D / 2, tokens) -> (x0 cos - x1 sin; x0 sin + x1 cos)."""
    d, tokens = x.shape
    half = d // 2
    tile_n = min(512, tokens)
    assert d <= nl.tile_size.pmax and tokens % tile_n == 0

    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:half, 0:tile_n]
    for n in nl.affine_range(tokens // tile_n):
        token = n * tile_n + i_f
        x0 = nl.load(x[i_p, token])
        x1 = nl.load(x[half + i_p, token])
        cos_tile = nl.load(cos[i_p, token])
        sin_tile = nl.load(sin[i_p, token])

        y0 = nl.subtract(nl.multiply(x0, cos_tile), nl.multiply(x1, sin_tile))
        y1 = nl.add(nl.multiply(x0, sin_tile), nl.multiply(x1, cos_tile))

        nl.store(result[i_p, token], value=y0)
        nl.store(result[half + i_p, token], value=y1)
    return result
