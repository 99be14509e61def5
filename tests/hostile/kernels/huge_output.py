# reference: softmax
# verdict: compile_error
# A petabyte of HBM.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    return nl.ndarray((1 << 22, 1 << 14, 1 << 14), dtype=x.dtype, buffer=nl.shared_hbm)
