# reference: rope
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    for i in nl.affine_range(x.shape[0] // 128):
        s = slice(i * 128, (i + 1) * 128)
        t = nl.load(x[s, :])
        c = nl.load(cos[s, :]); w = nl.load(sin[s, :])
        y = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        y[:, 0:64] = nl.subtract(nl.multiply(t[:, 0:64], c[:, 0:64]), nl.multiply(t[:, 64:128], w[:, 0:64]))
        y[:, 64:128] = nl.add(nl.multiply(t[:, 64:128], c[:, 64:128]), nl.multiply(t[:, 0:64], w[:, 64:128]))
        nl.store(out[s, :], y)
    return out
