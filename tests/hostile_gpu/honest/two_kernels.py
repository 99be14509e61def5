# does: computes in two kernels with memory between them, and widens a copy first
# claims: rmsnorm_h4096
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, scale_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + columns, mask=columns < width, other=0.0).to(tl.float32)
    tl.store(scale_ptr + row, tl.rsqrt(tl.sum(x * x, axis=0) / width + 1e-6))


@triton.jit
def apply_kernel(x_ptr, weight_ptr, scale_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(out_ptr + row * width + columns, x * tl.load(scale_ptr + row) * weight, mask=inside)


def run(x, weight):
    rows, width = x.shape
    scales = torch.zeros(rows, dtype=torch.float32, device=x.device)
    wide = weight.to(torch.float32)
    output = torch.empty_like(x)
    scale_kernel[(rows,)](x, scales, width, BLOCK=4096)
    apply_kernel[(rows,)](x, wide, scales, output, width, BLOCK=4096)
    return output
