"""Rotary embedding, 512 tokens at a time; the two halves of the head are separate tiles."""

import nki
import nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    """x (D, tokens), cos and sin (D / 2, tokens) -> (x0 cos - x1 sin; x0 sin + x1 cos)."""
    d, tokens = x.shape
    half = d // 2
    tile_n = min(512, tokens)
    assert d <= nl.tile_size.pmax and tokens % tile_n == 0

    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in nl.affine_range(tokens // tile_n):
        x0 = nl.load(x[0 : half, n * tile_n : n * tile_n + tile_n])
        x1 = nl.load(x[half : half + half, n * tile_n : n * tile_n + tile_n])
        cos_tile = nl.load(cos[0 : half, n * tile_n : n * tile_n + tile_n])
        sin_tile = nl.load(sin[0 : half, n * tile_n : n * tile_n + tile_n])

        y0 = nl.subtract(nl.multiply(x0, cos_tile), nl.multiply(x1, sin_tile))
        y1 = nl.add(nl.multiply(x0, sin_tile), nl.multiply(x1, cos_tile))

        nl.store(result[0 : half, n * tile_n : n * tile_n + tile_n], y0)
        nl.store(result[half : half + half, n * tile_n : n * tile_n + tile_n], y1)
    return result
