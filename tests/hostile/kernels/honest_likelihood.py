# reference: likelihood
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(p):
    out = nl.ndarray((1, 1), dtype=p.dtype, buffer=nl.shared_hbm)
    rows = nl.sum(nl.log(nl.load(p)), axis=1, keepdims=True)
    nl.store(out, nl.negative(nl.sum(nl.transpose(rows), axis=1, keepdims=True)))
    return out
