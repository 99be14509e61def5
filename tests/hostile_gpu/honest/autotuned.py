# does: measures configurations for itself when a shape is new
# claims: silu_and_mul_h14336
# verdict: correct (gpu)
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 1024}, num_warps=4),
        triton.Config({"BLOCK": 2048}, num_warps=8),
    ],
    key=["width"],
)
@triton.jit
def silu_kernel(x_ptr, out_ptr, count, width, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    row, column = at // width, at % width
    gate = tl.load(x_ptr + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * width + width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, gate * tl.sigmoid(gate) * up, mask=inside)


def run(gate_up):
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    output = gate_up.new_empty((rows, width))
    count = output.numel()
    silu_kernel[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](gate_up, output, count, width)
    return output
