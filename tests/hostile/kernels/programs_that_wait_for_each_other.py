# reference: softmax
# verdict: refused
# A program of the grid loads for the next one: right only if it comes first.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def one_part(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ahead = nl.ndarray((x.shape[0] + 128, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    p = nl.program_id(0)
    r, c = nl.mgrid[0:128, 0 : x.shape[1]]
    nl.store(ahead[r, c], nl.load(x[r, c]), mask=(p < 1))
    tile = nl.load(ahead[p * 128 + r, c])
    peak = nl.max(tile, axis=1, keepdims=True)
    e = nl.exp(nl.subtract(tile, peak))
    nl.store(out[p * 128 + r, c], nl.divide(e, nl.sum(e, axis=1, keepdims=True)))
    following = nl.load(x[p * 128 + 128 + r, c], mask=(p < 1))
    nl.store(ahead[p * 128 + 128 + r, c], following, mask=(p < 1))
    return out


kernel = one_part[2]
