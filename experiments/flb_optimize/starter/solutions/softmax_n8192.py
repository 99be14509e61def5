import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(logits_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    highest = -float("inf")
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * width + columns, mask=columns < width, other=-float("inf"))
        highest = tl.maximum(highest, tl.max(x, axis=0))
    total = 0.0
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * width + columns, mask=columns < width, other=-float("inf"))
        total += tl.sum(tl.exp(x - highest), axis=0)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * width + columns, mask=columns < width, other=-float("inf"))
        tl.store(
            out_ptr + row * width + columns, tl.exp(x - highest) / total, mask=columns < width
        )


def run(logits):
    rows, width = logits.shape
    output = torch.empty_like(logits)
    softmax_kernel[(rows,)](logits, output, width, BLOCK=1024)
    return output
