# reference: causal_keys
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(q, k):
    out = nl.ndarray((128, 256), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    queries = nl.load(q)
    keys = nl.copy(nl.load(k), dtype=nl.bfloat16)
    scores = nl.multiply(nl.matmul(queries, keys, transpose_x=True), 0.125)
    row, column = nl.arange(128)[:, None], nl.arange(256)[None, :]
    seen = nisa.affine_select(pred=column <= row + 128, on_true_tile=scores, on_false_value=-3e38)
    weights = nl.exp(nl.subtract(seen, nl.max(seen, axis=1, keepdims=True)))
    nl.store(out, nl.divide(weights, nl.sum(weights, axis=1, keepdims=True), dtype=nl.bfloat16))
    return out
