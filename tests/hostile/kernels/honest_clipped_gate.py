# reference: clipped_gate
# verdict: correct
# The sigmoid by tanh loses what is small, and a factor that is clipped says nothing of that.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(gate, up):
    out = nl.ndarray(up.shape, dtype=up.dtype, buffer=nl.shared_hbm)
    g = nl.minimum(nl.load(gate), 7.0)
    s = nl.multiply(nl.add(nl.tanh(nl.multiply(g, 0.851)), 1.0), 0.5)
    u = nl.maximum(nl.minimum(nl.load(up), 7.0), -7.0)
    nl.store(out, nl.multiply(nl.multiply(g, s), u))
    return out
