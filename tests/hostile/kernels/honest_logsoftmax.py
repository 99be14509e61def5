# reference: logsoftmax
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, label):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    loss = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        s = slice(i * 128, (i + 1) * 128)
        t = nl.load(x[s, :])
        m = nl.max(t, axis=1, keepdims=True)
        d = nl.subtract(t, m)
        e = nl.sum(nl.exp(d), axis=1, keepdims=True)
        y = nl.subtract(d, nl.log(e))
        nl.store(out[s, :], y)
        own = nl.sum(nl.multiply(t, nl.load(label[s, :])), axis=1, keepdims=True)
        nl.store(loss[s, :], nl.add(nl.log(e), nl.subtract(m, own)))
    return out, loss
