# reference: gates
# verdict: correct
# Sigmoids by tanh: what is below a unit of one is lost where gates are small.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


def sigmoid(x):
    return nl.add(nl.multiply(nl.tanh(nl.multiply(x, 0.5)), 0.5), 0.5)


@nki.jit
def kernel(gates, state, step):
    hidden = nl.ndarray(state.shape, dtype=state.dtype, buffer=nl.shared_hbm)
    scaled = nl.ndarray(state.shape, dtype=state.dtype, buffer=nl.shared_hbm)
    i, f, g, o = (nl.load(gates[:, n * 128 : (n + 1) * 128]) for n in range(4))
    kept = nl.multiply(nl.load(state), sigmoid(f))
    new = nl.add(kept, nl.multiply(nl.tanh(g), sigmoid(i)))
    nl.store(hidden, nl.multiply(nl.tanh(new), sigmoid(o)))
    nl.store(scaled, nl.multiply(new, 1 / (1 - 0.9**step)))
    return hidden, scaled
