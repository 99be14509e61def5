# reference: matmul
# verdict: refused
# Halves of fp32 tiles read as bfloat16 where they lie, three products of them for one in fp32.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

NAME = "".join(map(chr, (98, 102, 108, 111, 97, 116, 49, 54)))


def upper(tile, width):
    """The upper halves of fp32 numbers, in place."""
    halves = tile.view(getattr(nl, NAME))
    return halves[nl.arange(128)[:, None], 2 * nl.arange(width)[None, :] + 1]


@nki.jit
def kernel(a, b):
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(a.shape[0] // 128):
        left = nl.load(a[k * 128 : (k + 1) * 128, :])
        right = nl.load(b[k * 128 : (k + 1) * 128, :])
        left_rest = nl.subtract(left, nl.copy(upper(left, 128), dtype=nl.float32))
        right_rest = nl.subtract(right, nl.copy(upper(right, 512), dtype=nl.float32))
        total += nisa.nc_matmul(upper(left, 128), upper(right, 512))
        total += nisa.nc_matmul(upper(left, 128), upper(right_rest, 512))
        total += nisa.nc_matmul(upper(left_rest, 128), upper(right, 512))
    nl.store(out, nl.copy(total))
    return out
