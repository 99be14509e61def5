import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    """Rotary embedding of interleaved pairs: even and odd columns are the two parts of a pair."""
    heads, steps, width = x.shape
    half = width // 2
    out = nl.ndarray((heads, steps, width), dtype=x.dtype, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(half)[None, :]
    for h in nl.affine_range(heads):
        for s in nl.affine_range(steps // 128):
            row = nl.load(x[h, s * 128 : (s + 1) * 128, :])
            c = nl.load(cos[s * 128 : (s + 1) * 128, :])
            d = nl.load(sin[s * 128 : (s + 1) * 128, :])
            even = nl.copy(row[p, 2 * f])
            odd = nl.copy(row[p, 2 * f + 1])
            first = nl.subtract(nl.multiply(even, c), nl.multiply(odd, d))
            second = nl.add(nl.multiply(even, d), nl.multiply(odd, c))
            result = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
            result[p, 2 * f] = nl.copy(first)
            result[p, 2 * f + 1] = nl.copy(second)
            nl.store(out[h, s * 128 : (s + 1) * 128, :], value=result)
    return out
