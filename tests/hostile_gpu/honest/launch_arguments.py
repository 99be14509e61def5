# does: passes a launch a tuple of tensors, a tensor under another type, numbers and constants
# claims: rmsnorm_h4096
# verdict: correct
import torch
import triton
import triton.language as tl


@triton.jit
def rms_kernel(tensors, out_ptr, width, eps, SQUARE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    x = tl.load(tensors[0] + row * width + columns).to(tl.float32)
    weight = tl.load(tensors[1] + columns).to(tl.float32)
    squares = x * x if SQUARE else x
    scale = tl.rsqrt(tl.sum(squares, axis=0) / width + eps)
    tl.store(out_ptr + row * width + columns, x * scale * weight)


def run(x, weight):
    memory = torch.empty(2 * x.numel(), dtype=torch.uint8, device=x.device)
    output = memory.view(x.dtype).view(x.shape)
    as_bfloat = triton.reinterpret(output, tl.bfloat16)
    rms_kernel[(x.shape[0],)]((x, weight), as_bfloat, x.shape[1], 1e-6, SQUARE=True, BLOCK=4096)
    return output
