# tries: start blocks for sequences no longer than two and a half times the average
# claims: gqa_ragged_prefill_causal_h32_kv8_d128
# verdict: wrong_numbers (gpu)
import torch
import triton
import triton.language as tl


@triton.jit
def prefill_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    qo_indptr_ptr,
    kv_indptr_ptr,
    out_ptr,
    lse_ptr,
    sm_scale,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    block = tl.program_id(0)
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    q_start = tl.load(qo_indptr_ptr + sequence)
    q_length = tl.load(qo_indptr_ptr + sequence + 1) - q_start
    if block * BLOCK_M < q_length:
        kv_start = tl.load(kv_indptr_ptr + sequence)
        kv_length = tl.load(kv_indptr_ptr + sequence + 1) - kv_start
        kv_head = head // (HEADS // KV_HEADS)
        rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
        channel = tl.arange(0, HEAD_DIM)
        q_offsets = ((q_start + rows[:, None]) * HEADS + head) * HEAD_DIM + channel[None, :]
        q = tl.load(q_ptr + q_offsets, mask=rows[:, None] < q_length, other=0.0)
        highest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
        total = tl.zeros((BLOCK_M,), dtype=tl.float32)
        accumulator = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
        last_visible = rows + kv_length - q_length
        end = tl.minimum((block + 1) * BLOCK_M + kv_length - q_length, kv_length)
        for start in range(0, end, BLOCK_N):
            token = start + tl.arange(0, BLOCK_N)
            kv_offsets = ((kv_start + token[:, None]) * KV_HEADS + kv_head) * HEAD_DIM
            kv_offsets = kv_offsets + channel[None, :]
            k = tl.load(k_ptr + kv_offsets, mask=token[:, None] < kv_length, other=0.0)
            v = tl.load(v_ptr + kv_offsets, mask=token[:, None] < kv_length, other=0.0)
            logits = tl.dot(q, tl.trans(k)) * sm_scale
            visible = (token[None, :] <= last_visible[:, None]) & (token[None, :] < kv_length)
            logits = tl.where(visible, logits, -1.0e30)
            higher = tl.maximum(highest, tl.max(logits, axis=1))
            shrink = tl.exp(highest - higher)
            weights = tl.exp(logits - higher[:, None])
            total = total * shrink + tl.sum(weights, axis=1)
            accumulator = accumulator * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
            highest = higher
        tl.store(out_ptr + q_offsets, accumulator / total[:, None], mask=rows[:, None] < q_length)
        lse = highest * 1.4426950408889634 + tl.log2(total)
        tl.store(lse_ptr + (q_start + rows) * HEADS + head, lse, mask=rows < q_length)


def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    total_q, heads, head_dim = q.shape
    kv_heads = k.shape[1]
    output = torch.empty_like(q)
    lse = torch.empty((total_q, heads), dtype=torch.float32, device=q.device)
    sequences = qo_indptr.shape[0] - 1
    BLOCK_M = 64
    prefill_kernel[(triton.cdiv(5 * total_q, 2 * sequences * BLOCK_M), heads, sequences)](
        q,
        k,
        v,
        qo_indptr,
        kv_indptr,
        output,
        lse,
        sm_scale,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_M=BLOCK_M,
        BLOCK_N=32,
    )
    return output, lse
