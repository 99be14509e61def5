"""Plain Triton solutions for the tests of moves, as people write them."""

HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n\n"

# Attention of one row of queries, as people write it: an open loop, exponentials to the base e,
# values of index tensors read one by one.
OPEN_LOOP = (
    HEADER
    + """@triton.jit
def decode_kernel(q_ptr, k_ptr, v_ptr, begin, count, o_ptr, lse_ptr, scale, heads, group,
                  BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr):
    head = tl.program_id(0)
    channel = tl.arange(0, HEAD_DIM)
    q = tl.load(q_ptr + head * HEAD_DIM + channel).to(tl.float32)
    highest = -float("inf")
    total = 0.0
    result = tl.zeros((HEAD_DIM,), dtype=tl.float32)
    at = tl.zeros((), dtype=tl.int32)
    while at < count:
        token = at + tl.arange(0, BLOCK)
        inside = token < count
        place = ((begin + token[:, None]) * heads + head // group) * HEAD_DIM + channel[None, :]
        k = tl.load(k_ptr + place, mask=inside[:, None], other=0.0).to(tl.float32)
        logits = tl.sum(k * q[None, :], axis=1)
        logits *= scale
        logits = tl.where(inside, logits, -1.0e30)
        higher = tl.maximum(highest, tl.max(logits, axis=0))
        shrink = tl.exp(highest - higher)
        weights = tl.exp(logits - higher)
        v = tl.load(v_ptr + place, mask=inside[:, None], other=0.0).to(tl.float32)
        total = total * shrink + tl.sum(weights, axis=0)
        result = result * shrink + tl.sum(v * weights[:, None], axis=0)
        highest = higher
        at += BLOCK
    tl.store(o_ptr + head * HEAD_DIM + channel, result / total)
    tl.store(lse_ptr + head, (tl.log(total) + highest) * 1.4426950408889634)


def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    assert q.shape[0] == qo_indptr[-1].item()
    last = int(kv_indptr[-1].item())
    if last != k.shape[0]:
        raise ValueError("kv_indptr does not end at the number of keys")
    output = torch.zeros_like(q)
    lse = torch.full(q.shape[:2], -float("inf"), dtype=torch.float32, device=q.device)
    for sequence in range(qo_indptr.shape[0] - 1):
        q_begin, q_end = qo_indptr[sequence].item(), qo_indptr[sequence + 1].item()
        begin, end = kv_indptr[sequence].item(), kv_indptr[sequence + 1].item()
        for row in range(q_begin, q_end):
            decode_kernel[(q.shape[1],)](
                q[row], k, v, begin, end - begin - (q_end - 1 - row), output[row], lse[row],
                sm_scale, k.shape[1], q.shape[1] // k.shape[1], BLOCK=4, HEAD_DIM=q.shape[2],
            )
    return output, lse
"""
)

# The same for all rows of a sequence at once: one number counts rows and heads, the number of
# heads is a constant, and sequences without keys leave early.
FLAT = (
    HEADER
    + """@triton.jit
def flat_kernel(q_ptr, k_ptr, v_ptr, begin, count, rows, o_ptr, lse_ptr, scale, heads,
                QUERY_HEADS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
                HEAD_DIM: tl.constexpr):
    program = tl.program_id(axis=0)
    row = program // QUERY_HEADS
    head = program % QUERY_HEADS
    if head >= QUERY_HEADS:
        return
    last = count - rows + row
    channel = tl.arange(0, HEAD_DIM)
    own = (row * QUERY_HEADS + head) * HEAD_DIM + channel
    if last < 0:
        tl.store(o_ptr + own, tl.zeros((HEAD_DIM,), dtype=tl.float32))
        tl.store(lse_ptr + row * QUERY_HEADS + head, -float("inf"))
        return
    q = tl.load(q_ptr + own).to(tl.float32)
    nothing = tl.full((), -float("inf"), dtype=tl.float32)
    highest = nothing
    total = tl.zeros((), dtype=tl.float32)
    result = tl.zeros([HEAD_DIM], dtype=tl.float32)
    kv_head = (head // GROUP).to(tl.int32)
    for start in range(0, last + 1, BLOCK):
        token = start + tl.arange(0, BLOCK)
        seen = token <= last
        place = ((begin + token[:, None]) * heads + kv_head) * HEAD_DIM + channel[None, :]
        k = tl.load(k_ptr + place, mask=seen[:, None], other=0.0)
        logits = tl.sum(k * q[None, :] * scale, axis=1)
        logits = tl.where(seen, logits, nothing)
        higher = tl.maximum(highest, tl.max(logits, 0))
        weights = tl.exp(logits - higher)
        shrink = tl.where(highest == nothing, 0.0, tl.exp(highest - higher))
        v_turned = tl.trans(tl.load(v_ptr + place, mask=seen[:, None], other=0.0))
        total = total * shrink + tl.sum(weights, 0)
        result *= shrink
        result += tl.sum(v_turned * weights[None, :], axis=1)
        highest = higher
    tl.store(o_ptr + own, result / total)
    tl.store(lse_ptr + row * QUERY_HEADS + head, (tl.log(total) + highest) * 1.4426950408889634)


def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    wide, wide_k, wide_v = q.float(), k.float(), v.float()
    output = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    lse = torch.full(q.shape[:2], -float("inf"), dtype=torch.float32, device=q.device)
    query_heads = q.shape[1]
    for sequence in range(qo_indptr.shape[0] - 1):
        q_begin, q_end = qo_indptr[sequence].item(), qo_indptr[sequence + 1].item()
        begin, end = kv_indptr[sequence].item(), kv_indptr[sequence + 1].item()
        rows = q_end - q_begin
        if rows:
            grid = (rows * query_heads,)
            flat_kernel[grid](
                wide[q_begin:q_end], wide_k, wide_v, begin, end - begin, rows,
                output[q_begin:q_end], lse[q_begin:q_end], sm_scale, k.shape[1],
                QUERY_HEADS=query_heads, GROUP=query_heads // k.shape[1], BLOCK=16,
                HEAD_DIM=q.shape[2],
            )
    return output.to(q.dtype), lse
"""
)

# A launch for each sequence, with what the host knows of it as numbers.
LOOPED = (
    HEADER
    + """@triton.jit
def sequence_kernel(q_ptr, k_ptr, v_ptr, q_begin, rows, kv_begin, keys, o_ptr, lse_ptr, scale,
                    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
                    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    block = tl.program_id(axis=0)
    head = tl.program_id(1)
    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = tl.arange(0, HEAD_DIM)
    inside = row < rows
    own = ((q_begin + row[:, None]) * HEADS + head) * HEAD_DIM + channel[None, :]
    q = tl.load(q_ptr + own, mask=inside[:, None], other=0.0)
    highest = tl.full((BLOCK_M,), -1.0e30, dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    result = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    last = keys - rows + row
    for start in range(0, keys, BLOCK_N):
        token = start + tl.arange(0, BLOCK_N)
        place = ((kv_begin + token[:, None]) * KV_HEADS + head // (HEADS // KV_HEADS)) * HEAD_DIM
        place += channel[None, :]
        k = tl.load(k_ptr + place, mask=(token < keys)[:, None], other=0.0)
        logits = tl.dot(q, tl.trans(k)) * scale
        logits = tl.where(token[None, :] <= last[:, None], logits, -1.0e30)
        higher = tl.maximum(highest, tl.max(logits, axis=1))
        shrink = tl.exp(highest - higher)
        weights = tl.exp(logits - higher[:, None])
        v = tl.load(v_ptr + place, mask=(token < keys)[:, None], other=0.0)
        total = total * shrink + tl.sum(weights, axis=1)
        result = result * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        highest = higher
    tl.store(o_ptr + own, result / total[:, None], mask=inside[:, None])
    lse = (tl.log(total) + highest) * 1.4426950408889634
    tl.store(lse_ptr + (q_begin + row) * HEADS + head, lse, mask=inside)


def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    output = torch.zeros_like(q)
    lse = torch.full(q.shape[:2], -float("inf"), dtype=torch.float32, device=q.device)
    grid = lambda META: (triton.cdiv(rows, META["BLOCK_M"]), q.shape[1])
    for sequence in range(qo_indptr.shape[0] - 1):
        q_begin = qo_indptr[sequence].item()
        kv_begin = kv_indptr[sequence].item()
        rows = qo_indptr[sequence + 1].item() - q_begin
        keys = kv_indptr[sequence + 1].item() - kv_begin
        if rows > 0:
            sequence_kernel[grid](
                q, k, v, q_begin, rows, kv_begin, keys, output, lse, sm_scale,
                HEADS=q.shape[1], KV_HEADS=k.shape[1], HEAD_DIM=q.shape[2], BLOCK_M=16, BLOCK_N=16,
            )
    return output, lse
"""
)

# A program for each head of each query, which looks its sequence up; keys are found by pages, their
# channels lie in two halves, and the loop goes on past the last key that a query sees.
BY_SEQUENCE = (
    HEADER
    + """@triton.jit
def by_sequence_kernel(q_ptr, k_ptr, v_ptr, page_ptr, sequence_ptr, qo_indptr_ptr, kv_indptr_ptr,
                       o_ptr, lse_ptr, scale, kv_heads, HEADS: tl.constexpr, HALF: tl.constexpr,
                       BLOCK: tl.constexpr):
    query = tl.program_id(0)
    head = tl.program_id(1)
    sequence = tl.load(sequence_ptr + query)
    begin = tl.load(kv_indptr_ptr + sequence)
    count = tl.load(kv_indptr_ptr + sequence + 1) - begin
    first = tl.load(qo_indptr_ptr + sequence)
    last = count - (tl.load(qo_indptr_ptr + sequence + 1) - first) + query - first
    own = (query * HEADS + head) * (2 * HALF)
    hidden = -float("inf")
    highest = -float("inf")
    total = 0.0
    channel_left = 0 + tl.arange(0, HALF)
    channel_right = HALF + tl.arange(0, HALF)
    left = tl.zeros((HALF,), dtype=tl.float32)
    right = tl.zeros((HALF,), dtype=tl.float32)
    for start in range(0, count, BLOCK):
        token = start + tl.arange(0, BLOCK)
        inside = token < count
        page = tl.load(page_ptr + begin + token, mask=inside, other=0)
        logits = tl.zeros((BLOCK,), dtype=tl.float32)
        for part in tl.static_range(0, 2):
            channel = part * HALF + tl.arange(0, HALF)
            q = tl.load(q_ptr + own + channel).to(tl.float32)
            k = tl.load(k_ptr + page[:, None] * (2 * HALF) + channel[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
            logits += tl.sum(k * q[None, :], axis=1)
        logits = tl.where(inside & (token <= last), logits * scale, hidden)
        higher = tl.maximum(highest, tl.max(logits, axis=0))
        shrink = tl.where(highest == hidden, 0.0, tl.exp(highest - higher))
        weights = tl.where(token <= last, tl.exp(logits - higher), 0.0)
        total = total * shrink + tl.sum(weights, axis=0)
        k_left = tl.load(k_ptr + page[:, None] * (2 * HALF) + channel_left[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
        left = left * shrink + tl.sum(weights[:, None] * k_left, axis=0)
        k_right = tl.load(k_ptr + page[:, None] * (2 * HALF) + channel_right[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
        right = right * shrink + tl.sum(weights[:, None] * k_right, axis=0)
        highest = higher
    if count > 0:
        tl.store(o_ptr + own + channel_left, left / total)
        tl.store(o_ptr + own + channel_right, right / total)
        tl.store(lse_ptr + query * HEADS + head, (tl.log(total) + highest) * 1.4426950408889634)


def run(q, k, pages, qo_indptr, kv_indptr, sm_scale):
    HEADS = 2
    output = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    lse = torch.full(q.shape[:2], -float("inf"), dtype=torch.float32, device=q.device)
    sequences = torch.empty(q.shape[0], dtype=torch.int32, device=q.device)
    offsets = qo_indptr.cpu()
    for sequence in range(qo_indptr.shape[0] - 1):
        first = int(offsets[sequence].item())
        last = int(offsets[sequence + 1].item())
        if last > first:
            sequences[first:last] = sequence
    by_sequence_kernel[(q.shape[0], HEADS)](
        q, k, k, pages, sequences, qo_indptr, kv_indptr, output, lse, sm_scale, 1,
        HEADS=HEADS, HALF=16, BLOCK=16, num_warps=4,
    )
    return output, lse
"""
)
