import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def embed_rmsnorm(tokens, table, weight):
    """rmsnorm(table[tokens]) * weight; squares and their sum in one pass of Scalar, both products in one of
    Vector."""
    T = tokens.shape[0]
    V, D = table.shape
    out = nl.ndarray((T, D), dtype=table.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(128)[:, None]
    i_d = nl.arange(D)[None, :]
    w = nl.load(weight.reshape((1, D)).broadcast_to((128, D)))
    for t in nl.affine_range(T // 128):
        idx = nl.load(tokens[nl.ds(t * 128, 128), :])
        x = nl.load(table[idx[i_p, 0], i_d])
        total = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(nl.square, x, reduce_op=nl.add, reduce_res=total, dtype=nl.float32)
        mean = nisa.tensor_scalar(total, nl.multiply, 1.0 / D, False, nl.add, 1e-6)
        y = nisa.scalar_tensor_tensor(
            data=x, op0=nl.multiply, operand0=nl.rsqrt(mean), op1=nl.multiply, operand1=w,
            dtype=table.dtype,
        )
        nl.store(out[nl.ds(t * 128, 128), :], y)
    return out
