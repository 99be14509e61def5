# reference: adamw
# verdict: compile_error
# Not even a copy.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    return theta
