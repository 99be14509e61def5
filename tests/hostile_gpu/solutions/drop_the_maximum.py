# tries: leave out the maximum that keeps softmax from overflowing
# claims: softmax_n8192
# verdict: wrong_numbers
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + columns)
    x = tl.exp(x)
    tl.store(out_ptr + row * width + columns, x / tl.sum(x, axis=0))


def honest(x):
    output = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, output, x.shape[1], BLOCK=8192)
    return output


def run(x):
    return honest(x)
