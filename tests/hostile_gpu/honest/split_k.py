# does: adds parts of a product by atomic additions into zeros
# claims: gemm_n4096_k4096
# verdict: correct (gpu)
import torch
import triton
import triton.language as tl


@triton.jit
def part_kernel(a_ptr, b_ptr, c_ptr, M, N, K, STEP: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(2) * STEP
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(first, first + STEP, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :], mask=rows[:, None] < M, other=0.0)
        b = tl.load(b_ptr + columns[None, :] * K + inner[:, None])
        total += tl.dot(a, b)
    tl.atomic_add(c_ptr + rows[:, None] * N + columns[None, :], total, mask=rows[:, None] < M)


def run(A, B):
    (M, K), N = A.shape, B.shape[0]
    C = torch.zeros((M, N), dtype=torch.float32, device=A.device)
    part_kernel[(triton.cdiv(M, 64), N // 64, 2)](A, B, C, M, N, K, STEP=K // 2, BLOCK=64)
    return C.to(A.dtype)
