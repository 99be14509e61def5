# does: tunes tiles, with a heuristic for masks and tiles in groups for the cache
# claims: gemm_n4096_k4096
# verdict: correct (gpu)
import torch
import triton
import triton.language as tl


def configurations():
    return [
        triton.Config({"BM": m, "BN": n, "BK": 64, "GROUP": 8}, num_warps=w, num_stages=3)
        for m, n, w in ((64, 128, 4), (128, 128, 8))
    ]


@triton.autotune(configs=configurations(), key=["M", "N", "K"])
@triton.heuristics({"EVEN": lambda args: args["K"] % args["BK"] == 0})
@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    tall, wide = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = number // (GROUP * wide)
    height = tl.minimum(tall - group * GROUP, GROUP)
    down = group * GROUP + number % (GROUP * wide) % height
    across = number % (GROUP * wide) // height
    rows, columns = down * BM + tl.arange(0, BM), across * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a = a_ptr + (rows[:, None] % M) * K + depth[None, :]
    b = b_ptr + (columns[None, :] % N) * K + depth[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        if EVEN:
            left, right = tl.load(a), tl.load(b)
        else:
            left = tl.load(a, mask=depth[None, :] < K - start, other=0.0)
            right = tl.load(b, mask=depth[:, None] < K - start, other=0.0)
        total = tl.dot(left, right, total)
        a += BK
        b += BK
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=inside)


def run(A, B):
    (M, K), N = A.shape, B.shape[0]
    C = torch.empty((M, N), dtype=A.dtype, device=A.device)
    product[lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)](
        A, B, C, M, N, K
    )
    return C
