# does: a program for each multiprocessor takes tiles in turn, by descriptors made on the device
# claims: gemm_n4096_k4096
# verdict: correct (gpu)
import torch
import triton
import triton.language as tl


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    a = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    wide = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * wide, tl.num_programs(0)):
        row, column = tile // wide * BM, tile % wide * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, K, BK):
            total = tl.dot(a.load([row, start]), b.load([column, start]).T, total)
        c.store([row, column], total.to(tl.float16))


def scratch(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


def run(A, B):
    (M, K), N = A.shape, B.shape[0]
    C = torch.empty((M, N), dtype=A.dtype, device=A.device)
    triton.set_allocator(scratch)
    count = torch.cuda.get_device_properties(A.device).multi_processor_count
    product[(count,)](A, B, C, M, N, K, BM=128, BN=128, BK=64, num_warps=8, num_stages=3)
    return C
