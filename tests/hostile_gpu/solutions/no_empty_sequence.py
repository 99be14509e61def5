# tries: divide by the sum of the weights, which an empty sequence does not have
# claims: gqa_paged_decode_h32_kv8_d128_ps16
# verdict: wrong_numbers (gpu)
import torch
import triton
import triton.language as tl


@triton.jit
def decode_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    indptr_ptr,
    indices_ptr,
    last_page_ptr,
    out_ptr,
    lse_ptr,
    sm_scale,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    sequence = tl.program_id(0)
    kv_head = tl.program_id(1)
    first_page = tl.load(indptr_ptr + sequence)
    pages = tl.load(indptr_ptr + sequence + 1) - first_page
    length = (pages - 1) * PAGE_SIZE + tl.load(last_page_ptr + sequence)
    length = tl.where(pages > 0, length, 0)

    rows = tl.arange(0, 16)
    head = kv_head * GROUP + rows
    in_group = rows < GROUP
    channel = tl.arange(0, HEAD_DIM)
    q = tl.load(
        q_ptr + (sequence * HEADS + head[:, None]) * HEAD_DIM + channel[None, :],
        mask=in_group[:, None],
        other=0.0,
    )
    highest = tl.full((16,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((16,), dtype=tl.float32)
    accumulator = tl.zeros((16, HEAD_DIM), dtype=tl.float32)
    for start in range(0, length, BLOCK_N):
        token = start + tl.arange(0, BLOCK_N)
        inside = token < length
        page = tl.load(indices_ptr + first_page + token // PAGE_SIZE, mask=inside, other=0)
        slot = page.to(tl.int64) * PAGE_SIZE + token % PAGE_SIZE
        offsets = (slot[:, None] * KV_HEADS + kv_head) * HEAD_DIM + channel[None, :]
        k = tl.load(k_ptr + offsets, mask=inside[:, None], other=0.0)
        v = tl.load(v_ptr + offsets, mask=inside[:, None], other=0.0)
        logits = tl.dot(q, tl.trans(k)) * sm_scale
        logits = tl.where(inside[None, :], logits, -float("inf"))
        higher = tl.maximum(highest, tl.max(logits, axis=1))
        shrink = tl.exp(highest - higher)
        weights = tl.exp(logits - higher[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        accumulator = accumulator * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        highest = higher
    normal = total
    tl.store(
        out_ptr + (sequence * HEADS + head[:, None]) * HEAD_DIM + channel[None, :],
        accumulator / normal[:, None],
        mask=in_group[:, None],
    )
    lse = highest * 1.4426950408889634 + tl.log2(total)
    tl.store(lse_ptr + sequence * HEADS + head, lse, mask=in_group)


def run(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale):
    batch_size, heads, head_dim = q.shape
    page_size, kv_heads = k_cache.shape[1], k_cache.shape[2]
    output = torch.empty_like(q)
    lse = torch.empty((batch_size, heads), dtype=torch.float32, device=q.device)
    decode_kernel[(batch_size, kv_heads)](
        q,
        k_cache,
        v_cache,
        kv_indptr,
        kv_indices,
        kv_last_page_len,
        output,
        lse,
        sm_scale,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        PAGE_SIZE=page_size,
        GROUP=heads // kv_heads,
        BLOCK_N=16,
    )
    return output, lse
