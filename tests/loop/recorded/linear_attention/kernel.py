import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(q, k, v):
    """Linear attention with the feature map sigmoid: for every head, phi(q) (phi(k)^T v) / (phi(q) sum phi(k))."""
    heads, n, d = q.shape
    out = nl.ndarray((heads, n, d), dtype=q.dtype, buffer=nl.shared_hbm)
    for h in nl.affine_range(heads):
        for i in nl.affine_range(n // 128):
            q_tile = nl.load(q[h, i * 128 : (i + 1) * 128, :])
            phi_q = nl.sigmoid(q_tile)
            total = nl.zeros((128, d), dtype=nl.float32, buffer=nl.sbuf)
            norm = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            for j in nl.sequential_range(n // 128):
                k_tile = nl.load(k[h, j * 128 : (j + 1) * 128, :])
                v_tile = nl.load(v[h, j * 128 : (j + 1) * 128, :])
                phi_k = nl.sigmoid(k_tile)
                k_t = nl.transpose(phi_k)
                scores = nl.matmul(phi_q, k_t)
                total[...] = nl.add(total, nl.matmul(scores, v_tile))
                norm[...] = nl.add(norm, nl.sum(scores, axis=1, keepdims=True))
            result = nl.divide(total, norm.broadcast_to((128, d)))
            nl.store(out[h, i * 128 : (i + 1) * 128, :], value=result)
    return out
