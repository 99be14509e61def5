import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def row_softmax(x):
    rows, columns = x.shape
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        x_tile = nl.load(x[i * 128 : (i + 1) * 128, 0:columns])
        largest = nl.max(x_tile, axis=1, keepdims=True)
        total = nl.ndarray((nl.par_dim(128), 1), dtype=x.dtype, buffer=nl.sbuf)
        powers = nisa.activation_reduce(
            op=nl.exp,
            data=x_tile,
            bias=nl.negative(largest),
            reduce_op=np.add,
            reduce_res=total[0:128, 0:1],
        )
        y_tile = nl.multiply(powers, nl.reciprocal(total))
        nl.store(result[i * 128 : (i + 1) * 128, 0:columns], value=y_tile)
    return result
