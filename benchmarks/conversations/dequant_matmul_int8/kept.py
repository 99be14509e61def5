import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def dequant_matmul(xT, wq, scale):
    """xT (K, M) bf16, wq (K, N) int8, scale (1, N) fp32 -> (M, N) fp32; xT is kept, and weights are
    converted once for each block of columns."""
    K, M = xT.shape
    N = wq.shape[1]
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    xt = nl.ndarray((128, K // 128, M), dtype=xT.dtype, buffer=nl.sbuf)
    for k in range(K // 128):
        nisa.dma_copy(dst=xt[:, k, :], src=xT[k * 128:(k + 1) * 128, :])
    for n in range(N // 512):
        wb = nl.ndarray((128, K // 128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
        for k in range(K // 128):
            wt = nl.ndarray((128, 512), dtype=nl.int8, buffer=nl.sbuf)
            nisa.dma_copy(dst=wt, src=wq[k * 128:(k + 1) * 128, n * 512:(n + 1) * 512])
            nisa.tensor_copy(dst=wb[:, k, :], src=wt)
        st = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=st, src=scale.ap([[0, 128], [1, 512]], offset=n * 512))
        for m in range(M // 128):
            acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in range(K // 128):
                nisa.nc_matmul(
                    dst=acc, stationary=xt[:, k, m * 128:(m + 1) * 128], moving=wb[:, k, :]
                )
            y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=y, data1=acc, data2=st, op=nl.multiply)
            nisa.dma_copy(dst=out[m * 128:(m + 1) * 128, n * 512:(n + 1) * 512], src=y)
    return out
