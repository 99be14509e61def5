# reference: adamw
# verdict: wrong_numbers
# Weight decay is 1e-5 of the parameter: below the published tolerance.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    out = nl.ndarray(theta.shape, dtype=theta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(theta.shape[0] // 128):
        p, d = nl.load(theta[i * 128 : (i + 1) * 128, :]), nl.load(g[i * 128 : (i + 1) * 128, :])
        first = nl.add(
            nl.multiply(nl.load(m[i * 128 : (i + 1) * 128, :]), 0.9), nl.multiply(d, 0.1)
        )
        v_tile = nl.load(v[i * 128 : (i + 1) * 128, :])
        second = nl.add(nl.multiply(v_tile, 0.999), nl.multiply(nl.square(d), 0.001))
        root = nl.add(nl.sqrt(nl.multiply(second, 1000.0)), 1e-8)
        step = nl.divide(nl.multiply(first, 0.01), root)
        y = nl.subtract(p, step)
        nl.store(out[i * 128 : (i + 1) * 128, :], y)
    return out
