import math

import torch


def run(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale):
    batch_size, heads, head_dim = q.shape
    page_size, kv_heads = k_cache.shape[1], k_cache.shape[2]
    group = heads // kv_heads
    output = torch.zeros_like(q)
    lse = torch.full((batch_size, heads), -math.inf, dtype=torch.float32, device=q.device)
    indptr = kv_indptr.tolist()
    for b in range(batch_size):
        pages = kv_indices[indptr[b] : indptr[b + 1]].to(torch.int64)
        if pages.numel() == 0:
            continue
        length = (pages.numel() - 1) * page_size + int(kv_last_page_len[b])
        k = k_cache[pages].reshape(-1, kv_heads, head_dim)[:length].to(torch.float32)
        v = v_cache[pages].reshape(-1, kv_heads, head_dim)[:length].to(torch.float32)
        grouped = q[b].to(torch.float32).reshape(kv_heads, group, head_dim)
        logits = torch.einsum("hgd,nhd->hgn", grouped, k) * sm_scale
        lse[b] = (torch.logsumexp(logits, dim=-1) / math.log(2.0)).reshape(heads)
        weights = torch.softmax(logits, dim=-1)
        output[b] = torch.einsum("hgn,nhd->hgd", weights, v).reshape(heads, head_dim).to(q.dtype)
    return output, lse
