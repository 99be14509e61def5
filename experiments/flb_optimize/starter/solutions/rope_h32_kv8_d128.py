import torch
import triton
import triton.language as tl


@triton.jit
def rope_kernel(
    x_ptr, cache_ptr, positions_ptr, out_ptr, heads, HEAD_DIM: tl.constexpr, HEADS: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    half = tl.arange(0, HEAD_DIM // 2)
    position = tl.load(positions_ptr + token)
    cos = tl.load(cache_ptr + position * HEAD_DIM + half)[None, :]
    sin = tl.load(cache_ptr + position * HEAD_DIM + HEAD_DIM // 2 + half)[None, :]
    offsets = (token * heads + head[:, None]) * HEAD_DIM + half[None, :]
    inside = head[:, None] < heads
    first = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    second = tl.load(x_ptr + offsets + HEAD_DIM // 2, mask=inside).to(tl.float32)
    tl.store(out_ptr + offsets, first * cos - second * sin, mask=inside)
    tl.store(out_ptr + offsets + HEAD_DIM // 2, second * cos + first * sin, mask=inside)


def rotate(x, cos_sin_cache, positions):
    tokens, heads, head_dim = x.shape
    output = torch.empty_like(x)
    HEADS = 1
    rope_kernel[(tokens, triton.cdiv(heads, HEADS))](
        x, cos_sin_cache, positions, output, heads, HEAD_DIM=head_dim, HEADS=HEADS
    )
    return output


def run(q, k, cos_sin_cache, positions):
    return rotate(q, cos_sin_cache, positions), rotate(k, cos_sin_cache, positions)
