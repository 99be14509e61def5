import math

import torch


def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    heads, head_dim = q.shape[1], q.shape[2]
    group = heads // k.shape[1]
    output = torch.zeros_like(q)
    lse = torch.full(q.shape[:2], -math.inf, dtype=torch.float32, device=q.device)
    qo, kv = qo_indptr.tolist(), kv_indptr.tolist()
    for q_start, q_end, kv_start, kv_end in zip(qo, qo[1:], kv, kv[1:]):
        q_len, kv_len = q_end - q_start, kv_end - kv_start
        if q_len == 0 or kv_len == 0:
            continue
        rows = torch.arange(q_len, device=q.device)[:, None] + (kv_len - q_len)
        hidden = torch.arange(kv_len, device=q.device)[None, :] > rows
        for head in range(heads):
            q_head = q[q_start:q_end, head].to(torch.float32)
            k_head = k[kv_start:kv_end, head // group].to(torch.float32)
            v_head = v[kv_start:kv_end, head // group].to(torch.float32)
            logits = (q_head @ k_head.T * sm_scale).masked_fill(hidden, -math.inf)
            lse[q_start:q_end, head] = torch.logsumexp(logits, dim=-1) / math.log(2.0)
            output[q_start:q_end, head] = (torch.softmax(logits, dim=-1) @ v_head).to(q.dtype)
    return output, lse
