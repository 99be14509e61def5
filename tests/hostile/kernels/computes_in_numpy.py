# reference: softmax
# verdict: compile_error
# Asks for the data behind a tensor.

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    e = np.exp(np.asarray(x))
    return e / e.sum(axis=1, keepdims=True)
