"""Kernels of our own that Triton compiles to the PTX in `corpus/`; see `make_corpus.py`."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a = tl.load(x + at, mask=mask)
    b = tl.load(y + at, mask=mask)
    tl.store(out + at, a + b, mask=mask)


@triton.jit
def matmul(a, b, out, k_size, a_row, b_row, out_row,
           M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    left = a + rows[:, None] * a_row + inner[None, :]
    right = b + inner[:, None] * b_row + columns[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(0, k_size, K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += K
        right += K * b_row
    tl.store(out + rows[:, None] * out_row + columns[None, :], total.to(tl.float16))


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, weights / tl.sum(weights, 0), mask=at < columns)


@triton.jit
def reduction(x, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < n, other=0.0)
    tl.atomic_add(out, tl.sum(total, 0))


@triton.jit
def histogram(x, out, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0)
    counts = tl.histogram(values, BINS)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


@triton.jit
def attention(q, k, v, out, length, scale,
              ROWS: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr):  # fmt: skip
    first = tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    width = tl.arange(0, D)
    base = tl.program_id(1) * length * D
    query = tl.load(q + base + rows[:, None] * D + width[None, :])
    total = tl.zeros((ROWS, D), dtype=tl.float32)
    weight = tl.zeros((ROWS,), dtype=tl.float32)
    most = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    for start in range(0, first + ROWS, KEYS):
        keys = start + tl.arange(0, KEYS)
        key = tl.load(k + base + keys[None, :] * D + width[:, None])
        score = tl.dot(query, key) * scale
        score = tl.where(rows[:, None] >= keys[None, :], score, -float("inf"))
        now = tl.maximum(most, tl.max(score, 1))
        exponent = tl.exp2(score - now[:, None])
        shrink = tl.exp2(most - now)
        value = tl.load(v + base + keys[:, None] * D + width[None, :])
        total = tl.dot(exponent.to(tl.float16), value, total * shrink[:, None])
        weight = weight * shrink + tl.sum(exponent, 1)
        most = now
    tl.store(
        out + base + rows[:, None] * D + width[None, :], (total / weight[:, None]).to(tl.float16)
    )
