# reference: embedding
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(table, tokens):
    out = nl.ndarray((tokens.shape[0], table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    rows = nl.load(tokens)
    columns = nl.arange(table.shape[1])[None, :]
    found = nl.load(table[rows[nl.arange(128)[:, None], 0], columns])
    nl.store(out, found)
    return out
