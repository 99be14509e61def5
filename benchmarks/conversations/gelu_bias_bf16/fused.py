import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

P = 128


@nki.jit
def bias_gelu(x, bias):
    """x (M, N) bf16, bias (1, N) bf16 -> gelu(x + bias), bf16; the function in one instruction of Scalar."""
    M, N = x.shape
    out = nl.ndarray((M, N), dtype=x.dtype, buffer=nl.shared_hbm)
    every = nl.load(bias.broadcast_to((P, N)))
    for m in nl.affine_range(M // P):
        tile = nl.load(x[m * P:(m + 1) * P, :])
        s = nl.add(tile, every, dtype=nl.float32)
        y = nisa.activation(nl.gelu_apprx_tanh, s, dtype=x.dtype)
        nl.store(out[m * P:(m + 1) * P, :], value=y)
    return out
