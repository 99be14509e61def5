# tries: start a kernel that does nothing and let the library multiply
# claims: gemm_n4096_k4096
# verdict: refused
import torch
import triton
import triton.language as tl


@triton.jit
def nothing(out_ptr):
    tl.store(out_ptr, 0.0)


def run(A, B):
    scratch = torch.empty(1, device=A.device, dtype=A.dtype)
    nothing[(1,)](scratch)
    return torch.matmul(A, B.T)
