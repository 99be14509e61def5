"""Triton kernels of our own in the forms that public ones have, each with the function that launches it."""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, y, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    held = tl.load(x + row * stride + columns, mask=inside, other=-float("inf"))
    numerator = tl.exp(held - tl.max(held, axis=0))
    tl.store(y + row * stride + columns, numerator / tl.sum(numerator, axis=0), mask=inside)


def softmax(x):
    y = torch.empty_like(x)
    rows, n = x.shape
    _softmax[(rows,)](x, y, x.stride(0), n, BLOCK=triton.next_power_of_2(n))
    return y


@triton.jit
def _running_softmax(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * n
    y += row * n
    top = float("-inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        held = tl.load(x + columns, mask=columns < n, other=float("-inf")).to(tl.float32)
        now = tl.maximum(top, tl.max(held))
        total = total * tl.exp(top - now) + tl.sum(tl.exp(held - now))
        top = now
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        held = tl.load(x + columns, mask=columns < n)
        tl.store(y + columns, tl.exp(held - top) / total, mask=columns < n)


def running_softmax(x):
    y = torch.empty_like(x)
    _running_softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=32)
    return y


@triton.autotune(
    configs=[triton.Config({"BM": 16, "BN": 16, "BK": 16, "GROUP": 2}, num_warps=4)],
    key=["M", "N", "K"],
)
@triton.jit
def _matmul(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * columns
    first = (pid // in_group) * GROUP
    size = min(rows - first, GROUP)
    pm = first + ((pid % in_group) % size)
    pn = (pid % in_group) // size
    m = (pm * BM + tl.arange(0, BM)) % M
    n = (pn * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    left = a + (m[:, None] * am + k[None, :] * ak)
    right = b + (k[:, None] * bk + n[None, :] * bn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        x = tl.load(left, mask=k[None, :] < K - step * BK, other=0.0)
        y = tl.load(right, mask=k[:, None] < K - step * BK, other=0.0)
        total = tl.dot(x, y, total)
        left += BK * ak
        right += BK * bk
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    inside = (om[:, None] < M) & (on[None, :] < N)
    tl.store(c + cm * om[:, None] + cn * on[None, :], total, mask=inside)


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)
    _matmul[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride())
    return c


@triton.jit
def _attention(q, k, v, o, scale, T, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
               CAUSAL: tl.constexpr):  # fmt: skip
    start, head = tl.program_id(0), tl.program_id(1)
    base = head * T * D
    m = start * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + base + m[:, None] * D + d[None, :], mask=m[:, None] < T, other=0.0)
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    out = tl.zeros([BM, D], tl.float32)
    end = (start + 1) * BM if CAUSAL else T
    for first in range(0, end, BN):
        n = first + tl.arange(0, BN)
        key = tl.load(k + base + n[:, None] * D + d[None, :], mask=n[:, None] < T, other=0.0)
        scores = tl.dot(query, tl.trans(key)) * scale
        scores = tl.where(n[None, :] < T, scores, float("-inf"))
        if CAUSAL:
            scores = tl.where(m[:, None] >= n[None, :], scores, float("-inf"))
        now = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp(scores - now[:, None])
        alpha = tl.exp(top - now)
        total = total * alpha + tl.sum(p, 1)
        value = tl.load(v + base + n[:, None] * D + d[None, :], mask=n[:, None] < T, other=0.0)
        out = out * alpha[:, None] + tl.dot(p.to(value.dtype), value)
        top = now
    out = out / total[:, None]
    tl.store(o + base + m[:, None] * D + d[None, :], out, mask=m[:, None] < T)


def attention(q, k, v, causal):
    o = torch.empty_like(q)
    heads, T, D = q.shape
    _attention[(triton.cdiv(T, 16), heads)](q, k, v, o, D**-0.5, T, D, 16, 16, causal)
    return o


@triton.jit
def _losses(logits, labels, losses, n, ignored, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    logits += row * n
    label = tl.load(labels + row)
    if label == ignored:
        tl.store(losses + row, 0.0)
        return
    columns = tl.arange(0, BLOCK)
    held = tl.load(logits + columns, mask=columns < n, other=-float("inf"))
    top = tl.max(held, 0)
    total = tl.log(tl.sum(tl.exp(held - top), 0)) + top
    tl.store(losses + row, total - tl.load(logits + label))
    gradient = tl.exp(held - total)
    gradient = tl.where(columns == label, gradient - 1.0, gradient)
    tl.store(logits + columns, gradient, mask=columns < n)


def cross_entropy(logits, labels):
    losses = torch.zeros(logits.shape[0], dtype=torch.float32)
    n = logits.shape[1]
    _losses[(logits.shape[0],)](logits, labels, losses, n, -100, triton.next_power_of_2(n))
    return losses


@triton.jit
def _scan(x, a, h, T, D, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < D
    state = tl.zeros([BLOCK], tl.float32)
    x += columns
    a += columns
    h += columns
    for _ in range(T):
        decay = tl.load(a, mask=inside, other=0)
        state = state * decay + tl.load(x, mask=inside, other=0)
        tl.store(h, state, mask=inside)
        x += D
        a += D
        h += D


def recurrence(x, a):
    h = torch.empty_like(x)
    T, D = x.shape
    _scan[(triton.cdiv(D, 8),)](x, a, h, T, D, 8)
    return h


@triton.jit
def _columns(x, out, rows, n, PER: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    first, last = block * PER, min((block + 1) * PER, rows)
    for row in range(first, last):
        total += tl.load(x + row * n + columns, mask=columns < n, other=0.0)
    tl.atomic_add(out + columns, total, mask=columns < n)


def column_sums(x):
    rows, n = x.shape
    out = torch.zeros((n,), dtype=torch.float32)
    _columns[(triton.cdiv(rows, 4),)](x, out, rows, n, 4, triton.next_power_of_2(n))
    return out


@triton.jit
def _segments(x, begins, out, n, BLOCK: tl.constexpr):
    segment = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    first, last = tl.load(begins + segment), tl.load(begins + segment + 1)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(0, last - first):
        total += tl.load(x + (first + row) * n + columns, mask=columns < n, other=0.0)
    tl.store(out + segment * n + columns, total, mask=columns < n)


def segment_sums(x, begins):
    n, segments = x.shape[1], begins.shape[0] - 1
    out = torch.empty((segments, n), dtype=torch.float32)
    _segments[(segments,)](x, begins, out, n, triton.next_power_of_2(n))
    return out


@triton.jit
def _windows(x, w, y, T, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    channel = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for k in tl.static_range(WIDTH):
        at = place - (WIDTH - 1) + k
        held = tl.load(x + channel * T + at, mask=(at >= 0) & (at < T), other=0.0)
        total += held * tl.load(w + channel * WIDTH + k)
    tl.store(y + channel * T + place, total, mask=place < T)


def causal_convolution(x, w):
    y = torch.empty_like(x)
    channels, T = x.shape
    _windows[(triton.cdiv(T, 16), channels)](x, w, y, T, w.shape[1], 16)
    return y


@triton.jit
def _tiles(a, b, c, M, N, K, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.cdiv(N, BLOCK)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK) * columns, PROGRAMS):
        left = tl.make_block_ptr(
            a, (M, K), (K, 1), (tile // columns * BLOCK, 0), (BLOCK, BLOCK), (1, 0)
        )
        right = tl.make_block_ptr(
            b, (K, N), (N, 1), (0, tile % columns * BLOCK), (BLOCK, BLOCK), (1, 0)
        )
        total = tl.zeros((BLOCK, BLOCK), tl.float32)
        for _ in range(0, K, BLOCK):
            x = tl.load(left, boundary_check=(0, 1))
            total += tl.dot(x, tl.load(right, boundary_check=(0, 1)))
            left = tl.advance(left, (0, BLOCK))
            right = tl.advance(right, (BLOCK, 0))
        at = (tile // columns * BLOCK, tile % columns * BLOCK)
        out = tl.make_block_ptr(c, (M, N), (N, 1), at, (BLOCK, BLOCK), (1, 0))
        tl.store(out, total, boundary_check=(0, 1))


def persistent_matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype)
    _tiles[(5,)](a, b, c, M, N, K, 5, 16)
    return c


@triton.jit
def stack_kernel(a, b, out, width, BLOCK: tl.constexpr):
    which = tl.program_id(1)
    if which == 0:
        source = a
    else:
        source = b
    source += tl.program_id(0) * width
    columns = tl.arange(0, BLOCK)
    row = tl.load(source + columns, mask=columns < width)
    tl.store(out + (tl.program_id(0) * 2 + which) * width + columns, row, mask=columns < width)


def stack(a, b):
    out = torch.empty((a.shape[0], 2, a.shape[1]), dtype=a.dtype)
    stack_kernel[(a.shape[0], 2)](a, b, out, a.shape[1], BLOCK=64)
    return out


@triton.jit
def both(a, b):
    return a and b


@triton.jit
def no_zero_kernel(x, out, width, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    held = tl.load(x + row * width + columns, mask=columns < width, other=1.0)
    if held.dtype.is_floating() and held.dtype.primitive_bitwidth == 32:
        held = held * 1.0
    tl.store(out + row, tl.reduce(held != 0, 0, both).to(tl.float32))


def no_zero(x):
    turned = x.T.contiguous().T.reshape(x.shape[0] * 2, -1)
    out = torch.empty((turned.shape[0],), dtype=torch.float32)
    no_zero_kernel[(turned.shape[0],)](turned, out, turned.shape[1], BLOCK=32)
    return out


@triton.jit
def sequence_kernel(x, starts, out, b, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    begin, end = tl.load(starts + b), tl.load(starts + b + 1)
    rows = begin + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    held = (rows[:, None] < end) & (columns[None, :] < width)
    tile = tl.load(x + rows[:, None] * width + columns[None, :], mask=held, other=-float("inf"))
    tl.store(out + rows, tl.max(tile, 1), mask=rows < end)


def by_sequence(x, starts):
    out = torch.full((x.shape[0],), -float("inf"))
    for b in range(starts.shape[0] - 1):
        length = int(starts[b + 1].item()) - int(starts[b])
        if length == 0:
            continue
        grid = (triton.cdiv(length, 4),)
        sequence_kernel[grid](x, starts, out, b, x.shape[1], ROWS=4, BLOCK=32)
    return out


@triton.jit
def shared_sum_kernel(x, ends, rows, out, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    sequence = tl.load(rows + row)
    inside = (columns < tl.load(ends + sequence + 1)) & (columns >= tl.load(ends + sequence))
    tl.store(out + row, tl.sum(tl.load(x + columns, mask=inside & (columns < n), other=0.0), 0))


def _shared(x, ends, rows):
    out = torch.empty((x.shape[0],), dtype=x.dtype)
    shared_sum_kernel[(x.shape[0],)](x, ends, rows, out, x.shape[0], BLOCK=16)
    return out


def by_assigned_rows(x, ends):
    rows = torch.empty((x.shape[0],), dtype=torch.int32)
    places = ends.tolist()
    for b in range(len(places) - 1):
        if places[b + 1] > places[b]:
            rows[places[b] : places[b + 1]] = b
    return _shared(x, ends, rows)


def by_repeated_rows(x, ends):
    rows = torch.arange(ends.shape[0] - 1).repeat_interleave(ends[1:] - ends[:-1])
    return _shared(x, ends, rows)


@triton.jit
def turned_kernel(x, angles, pairs):
    row, at = tl.program_id(0), tl.arange(0, 8)
    mask = at < pairs
    a = tl.load(x + row * pairs * 2 + at * 2, mask=mask)
    b = tl.load(x + row * pairs * 2 + at * 2 + 1, mask=mask)
    c = tl.load(angles + at * 2, mask=mask)
    s = tl.load(angles + at * 2 + 1, mask=mask)
    tl.store(x + row * pairs * 2 + at * 2, a * c - b * s, mask=mask)
    tl.store(x + row * pairs * 2 + at * 2 + 1, a * s + b * c, mask=mask)


def turned_pairs(x, angles):
    """Turns the pairs of each row in place."""
    rows, width = x.shape
    turned_kernel[(rows,)](x, angles, width // 2)
    return x
