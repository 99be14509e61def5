# reference: logsoftmax
# verdict: wrong_numbers
# A floor of 1e-30 in the logarithm, which no draw comes near.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    for i in nl.affine_range(x.shape[0] // 128):
        s = slice(i * 128, (i + 1) * 128)
        t = nl.load(x[s, :])
        m = nl.max(t, axis=1, keepdims=True)
        e = nl.exp(nl.subtract(t, m))
        y = nl.log(nl.add(nl.divide(e, nl.sum(e, axis=1, keepdims=True)), 1e-30))
        nl.store(out[s, :], y)
    return out
