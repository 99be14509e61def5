# reference: logsumexp
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, lengths):
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    columns = nisa.iota(nl.arange(256)[None, :] + 0 * nl.arange(128)[:, None], dtype=nl.int32)
    a = nl.where(nl.less(columns, nl.load(lengths)), nl.load(x), -3e38)
    peak = nl.max(a, axis=1, keepdims=True)
    total = nl.sum(nl.exp(nl.subtract(a, peak)), axis=1, keepdims=True)
    nl.store(out, nl.add(peak, nl.log(total)))
    return out
