# reference: ragged
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, lengths, label):
    total = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    peak = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    hot = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, many, name = nl.load(x), nl.load(lengths), nl.load(label)
    columns = nisa.iota(nl.arange(256)[None, :] + 0 * nl.arange(128)[:, None], dtype=nl.int32)
    there = nl.less(columns, many, dtype=nl.float32)
    nl.store(total, nl.sum(nl.multiply(a, there), axis=1, keepdims=True))
    nl.store(hot, nl.equal(columns, name, dtype=nl.float32))
    kept = nl.where(nl.less(columns, many), a, -3e38)
    nl.store(peak, nl.max(kept, axis=1, keepdims=True))
    return total, hot, peak
