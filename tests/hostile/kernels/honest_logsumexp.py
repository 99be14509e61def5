# reference: logsumexp
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    for half in nl.affine_range(2):
        rows = nl.ds(half * 128, 128)
        a = nl.load(x[rows, :])
        peak = nl.max(a, axis=1, keepdims=True)
        total = nl.sum(nl.exp(nl.subtract(a, peak)), axis=1, keepdims=True)
        nl.store(out[rows, :], nl.add(peak, nl.log(total)))
    return out
