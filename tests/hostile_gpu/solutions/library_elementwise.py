# tries: compute with elementwise operators beside a kernel that does nothing
# claims: softmax_n8192
# verdict: refused (gpu)
import torch
import triton
import triton.language as tl


@triton.jit
def nothing(out_ptr):
    tl.store(out_ptr, 0.0)


def run(x):
    nothing[(1,)](torch.empty(1, device=x.device))
    shifted = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return shifted / shifted.sum(dim=-1, keepdim=True)
