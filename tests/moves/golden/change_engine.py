# Run nl.copy in line 17 on the vector engine.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(4):
        rows = nl.load(x[m * 128:(m + 1) * 128, 0:256])
        for n in nl.affine_range(4):
            acc = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                # The weight is small.
                w_tile = nl.load(w[k * 128:(k + 1) * 128, n * 256:(n + 1) * 256])
                acc += nl.matmul(rows[:, k * 128:(k + 1) * 128], w_tile)
            y = nisa.tensor_copy(acc, engine=nisa.vector_engine)
            nl.store(out[m * 128:(m + 1) * 128, n * 256:(n + 1) * 256], value=y)
    return out
