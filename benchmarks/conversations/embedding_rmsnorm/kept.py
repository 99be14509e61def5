import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def embed_rmsnorm(tokens, table, weight):
    """rmsnorm(table[tokens]) * weight; the weight is loaded once, and all tokens with one load."""
    T = tokens.shape[0]
    V, D = table.shape
    out = nl.ndarray((T, D), dtype=table.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(128)[:, None]
    i_d = nl.arange(D)[None, :]
    w = nl.load(weight.reshape((1, D)).broadcast_to((128, D)))
    for t in nl.affine_range(T // 128):
        idx = nl.load(tokens[nl.ds(t * 128, 128), :])
        x = nl.load(table[idx[i_p, 0], i_d])
        ms = nl.mean(nl.square(x, dtype=nl.float32), axis=1, keepdims=True)
        r = nl.rsqrt(nl.add(ms, 1e-6))
        y = nl.multiply(x, r, dtype=nl.float32)
        nl.store(out[nl.ds(t * 128, 128), :], nl.multiply(y, w, dtype=table.dtype))
    return out
