# tries: leave out the last step of the inner dimension
# claims: gemm_n4096_k4096
# verdict: wrong_numbers
import torch
import triton
import triton.language as tl


@triton.jit
def gemm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    LAST,
    NARROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, LAST, BLOCK_K):
        k = start + inner
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=rows[:, None] < M, other=0.0)
        b = tl.load(b_ptr + columns[None, :] * K + k[:, None])
        if NARROW:
            a, b = a.to(tl.float8e5), b.to(tl.float8e5)
        accumulator += tl.dot(a, b)
    c = accumulator.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], c, mask=rows[:, None] < M)


def run(A, B):
    (M, K), N = A.shape, B.shape[0]
    C = torch.empty((M, N), dtype=A.dtype, device=A.device)
    gemm_kernel[(triton.cdiv(M, 64), N // 128)](
        A,
        B,
        C,
        M,
        N,
        K,
        LAST=K - 64,
        NARROW=False,
        BLOCK_M=64,
        BLOCK_N=128,
        BLOCK_K=64,
    )
    return C
