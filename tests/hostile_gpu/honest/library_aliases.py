# does: gives names of the kernel language other names, and asks for a format by name
# claims: softmax_n8192
# verdict: correct (gpu)
import torch
import triton
import triton.language as tl

try:
    from triton.language.extra import libdevice
except ImportError:
    libdevice = tl.math
exp2 = tl.exp2
LOG2_E = tl.constexpr(1.4426950408889634)
FP8 = getattr(torch, "float8_e4m3fn", None)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=inside, other=-float("inf"))
    weights = exp2((x - tl.max(x, axis=0)) * LOG2_E)
    tl.store(out_ptr + row * width + columns, weights / tl.sum(weights, axis=0), mask=inside)


@torch.no_grad()
def run(logits):
    assert logits.dtype in (torch.float32, torch.float16) and logits.dtype != FP8
    device = torch.device(logits.device)
    output = torch.empty(logits.shape, dtype=logits.dtype, device=device)
    rows, width = logits.shape
    grid = lambda META: (rows,)
    softmax_kernel[grid](logits, output, width, BLOCK=triton.next_power_of_2(width))
    return output
