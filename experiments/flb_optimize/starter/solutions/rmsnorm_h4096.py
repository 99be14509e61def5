import torch
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * width + columns, mask=columns < width, other=0.0).to(tl.float32)
        total += x * x
    scale = tl.rsqrt(tl.sum(total, axis=0) / width + 1e-6)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * width + columns, mask=columns < width, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=columns < width, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * width + columns, x * scale * weight, mask=columns < width)


def run(hidden_states, weight):
    rows, width = hidden_states.shape
    output = torch.empty_like(hidden_states)
    rmsnorm_kernel[(rows,)](hidden_states, weight, output, width, BLOCK=512)
    return output
