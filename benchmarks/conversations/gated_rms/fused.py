import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def gated_rms(x, gate):
    rows, columns = x.shape
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        x_tile = nl.load(x[i * 128 : (i + 1) * 128, 0:columns])
        gate_tile = nl.load(gate[i * 128 : (i + 1) * 128, 0:columns])
        total = nl.ndarray((nl.par_dim(128), 1), dtype=x.dtype, buffer=nl.sbuf)
        nisa.activation_reduce(
            op=nl.square, data=x_tile, reduce_op=np.add, reduce_res=total[0:128, 0:1]
        )
        scale = nl.rsqrt(nl.add(nl.multiply(total, 1.0 / columns), 1e-6))
        sigmoid = nl.sigmoid(gate_tile)
        y_tile = nisa.scalar_tensor_tensor(
            data=x_tile, op0=np.multiply, operand0=scale, op1=np.multiply, operand1=sigmoid
        )
        nl.store(result[i * 128 : (i + 1) * 128, 0:columns], value=y_tile)
    return result
