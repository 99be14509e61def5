import torch
import triton
import triton.language as tl


@triton.jit
def silu_and_mul_kernel(gate_up_ptr, out_ptr, count, width, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    row = offsets // width
    column = offsets % width
    gate = tl.load(gate_up_ptr + row * 2 * width + column, mask=inside).to(tl.float32)
    up = tl.load(gate_up_ptr + row * 2 * width + width + column, mask=inside).to(tl.float32)
    tl.store(out_ptr + offsets, gate * tl.sigmoid(gate) * up, mask=inside)


def run(gate_up):
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    output = torch.empty((rows, width), dtype=gate_up.dtype, device=gate_up.device)
    count = rows * width
    BLOCK = 256
    silu_and_mul_kernel[(triton.cdiv(count, BLOCK),)](
        gate_up, output, count, width, BLOCK=BLOCK
    )
    return output
