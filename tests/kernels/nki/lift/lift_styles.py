"""Kernels as people write them: the same few problems in the everyday styles of NKI.

Each entry of STYLES is a kernel, the shapes of its arguments, and the definitions it must lift to.
"""

# ruff: noqa: E402
from accelopt.sim import standin

standin.install(always=True)

import math

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


def out_like(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


# Attention.


def flash_attention(q, k, v):
    """One head: q (D, M), k (D, N), v (N, D), the sums rescaled as the maximum grows."""
    d, rows = q.shape
    out = nl.ndarray((rows, d), dtype=q.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        query = nl.load(q[:, nl.ds(i * 128, 128)])
        highest = nl.full((nl.par_dim(128), 1), -3.0e38, dtype=nl.float32)
        total = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32)
        result = nl.zeros((nl.par_dim(128), d), dtype=nl.float32)
        for j in nl.sequential_range(k.shape[1] // 128):
            keys = nl.load(k[:, nl.ds(j * 128, 128)])
            scores = nl.multiply(nisa.nc_matmul(query, keys), 1 / math.sqrt(d))
            now = nl.maximum(highest, nl.max(scores, axis=[1], keepdims=True))
            scale = nl.exp(nl.subtract(highest, now))
            weights = nl.exp(nl.subtract(scores, now))
            part = nl.sum(weights, axis=[1], keepdims=True)
            total[...] = nl.add(nl.multiply(total, scale), part)
            turned = nl.copy(nisa.nc_transpose(weights))
            values = nl.load(v[nl.ds(j * 128, 128), :])
            product = nisa.nc_matmul(turned, values)
            result[...] = nl.add(nl.multiply(result, scale), product)
            highest[...] = nl.copy(now)
        nl.store(out[nl.ds(i * 128, 128), :], nl.divide(result, total))
    return out


ATTENTION = """product[m, l] = sum_j q[j, m] * k[j, l]
largest[m] = max_l product[m, l]
product2[m, n] = sum_l v[l, n] * exp(product[m, l] * 0.125 - largest[m] * 0.125)
total[m] = sum_l exp(product[m, l] * 0.125 - largest[m] * 0.125)
out[m, n] = product2[m, n] / total[m]"""
GELU_MLP = """product[m, k] = sum_l x[l, m] * w1[l, k]
out[m, n] = sum_k w2[k, n] * gelu_apprx_tanh(product[m, k])"""


# Norms.


def layernorm_statistics(x, gain, shift):
    """The mean and the variance by nisa.bn_stats, in groups of 32."""
    out = out_like(x)
    width = x.shape[1]
    gains = nl.load(gain.reshape((1, width))).broadcast_to((128, width))
    shifts = nl.load(shift.reshape((1, width))).broadcast_to((128, width))
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[nl.ds(i * 128, 128), :])
        groups = nl.ndarray((nl.par_dim(128), 6 * (width // 32)), dtype=nl.float32)
        for g in nl.affine_range(width // 32):
            groups[:, nl.ds(g * 6, 6)] = nisa.bn_stats(tile[:, nl.ds(g * 32, 32)])
        found = nisa.bn_aggr(groups)
        spread = nl.rsqrt(nl.add(found[:, 1:2], 1e-5))
        normed = nisa.tensor_scalar(
            tile, op0=np.subtract, operand0=found[:, 0:1], op1=np.multiply, operand1=spread
        )
        nl.store(out[nl.ds(i * 128, 128), :], nl.add(nl.multiply(normed, gains), shifts))
    return out


def layernorm_one_pass(x, gain, shift):
    """The variance as the mean of squares less the square of the mean."""
    out = out_like(x)
    width = x.shape[1]
    gains = nl.load(gain.reshape((1, width))).broadcast_to((128, width))
    shifts = nl.load(shift.reshape((1, width))).broadcast_to((128, width))
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[nl.ds(i * 128, 128), :])
        mean = nl.mean(tile, axis=[1], keepdims=True)
        squares = nl.mean(nl.square(tile), axis=[1], keepdims=True)
        variance = nl.subtract(squares, nl.square(mean))
        normed = nl.multiply(nl.subtract(tile, mean), nl.rsqrt(variance + 1e-5))
        nl.store(out[nl.ds(i * 128, 128), :], nl.add(nl.multiply(normed, gains), shifts))
    return out


LAYERNORM = """total[m] = sum_n x[m, n]
total2[m] = sum_n (x[m, n] - total[m] * {mean})**2
out[m, n] = gain[n] * (x[m, n] - total[m] * {mean}) * rsqrt(total2[m] * {mean} + 1e-05) + shift[n]"""


# Products.


def matmul_unrolled(a, b):
    """The contraction in Python, sums kept in SBUF."""
    k_size, m_size = a.shape
    out = nl.ndarray((m_size, b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        for n in nl.affine_range(b.shape[1] // 512):
            total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32)
            for k in nl.static_range(k_size // 128):
                x = nl.load(a[k * 128 : (k + 1) * 128, nl.ds(m * 128, 128)])
                y = nl.load(b[k * 128 : (k + 1) * 128, nl.ds(n * 512, 512)])
                total[...] = nl.add(total, nisa.nc_matmul(x, y))
            nl.store(out[nl.ds(m * 128, 128), nl.ds(n * 512, 512)], total)
    return out


MATMUL = "out[m, n] = sum_k a[k, m] * b[k, n]"


def gelu_mlp(x, w1, w2):
    """x (K, M) -> gelu(x.T @ w1) @ w2, gelu by its tanh approximation written out."""
    k_size, m_size = x.shape
    h_size, n_size = w2.shape
    out = nl.ndarray((m_size, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        hidden = nl.ndarray((nl.par_dim(128), h_size), dtype=nl.float32)
        for h in nl.affine_range(h_size // 128):
            total = nl.zeros((128, 128), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                left = nl.load(x[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
                total += nisa.nc_matmul(left, nl.load(w1[nl.ds(k * 128, 128), nl.ds(h * 128, 128)]))
            y = nl.copy(total)
            cubed = nl.multiply(nl.multiply(y, y), y)
            inner = nl.multiply(nl.add(y, nl.multiply(cubed, 0.044715)), 0.7978845608)
            gate = nl.add(nl.tanh(inner), 1.0)
            hidden[:, nl.ds(h * 128, 128)] = nl.multiply(nl.multiply(y, 0.5), gate)
        result = nl.zeros((128, n_size), dtype=nl.float32, buffer=nl.psum)
        for h in nl.affine_range(h_size // 128):
            turned = nl.copy(nisa.nc_transpose(hidden[:, nl.ds(h * 128, 128)]))
            result += nisa.nc_matmul(turned, nl.load(w2[nl.ds(h * 128, 128), :]))
        nl.store(out[nl.ds(m * 128, 128), :], nl.copy(result))
    return out


def heads_unrolled(q, k):
    """q, k (D, H M): the scores of four heads, each written out."""
    width = q.shape[1] // 4
    out = nl.ndarray((4 * width, width), dtype=q.dtype, buffer=nl.shared_hbm)
    for h in nl.static_range(4):
        query = nl.load(q[:, h * width : (h + 1) * width])
        keys = nl.load(k[:, h * width : (h + 1) * width])
        scores = nl.softmax(nl.copy(nisa.nc_matmul(query, keys)), axis=1)
        nl.store(out[h * width : (h + 1) * width, :], scores)
    return out


# Scans and neighbourhoods.


def cumulative_sum(x):
    """Tile by tile, each going on where the one before ended."""
    out = out_like(x)
    for i in nl.affine_range(x.shape[0] // 128):
        carry = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32)
        ones = nl.full((nl.par_dim(128), 64), 1.0, dtype=nl.float32)
        for j in nl.sequential_range(x.shape[1] // 64):
            tile = nl.load(x[nl.ds(i * 128, 128), nl.ds(j * 64, 64)])
            sums = nisa.tensor_tensor_scan(ones, tile, initial=carry, op0=np.multiply, op1=np.add)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 64, 64)], sums)
            carry[...] = nl.copy(sums[:, 63:64])
    return out


def depthwise_convolution(x, w):
    """x (C, L), w (C, 3) -> (C, L - 2)."""
    channels, length = x.shape
    out = nl.ndarray((channels, length - 2), dtype=x.dtype, buffer=nl.shared_hbm)
    for c in nl.affine_range(channels // 128):
        tile = nl.load(x[nl.ds(c * 128, 128), :])
        weights = nl.load(w[nl.ds(c * 128, 128), :])
        total = nl.zeros((nl.par_dim(128), length - 2), dtype=nl.float32)
        for tap in nl.affine_range(3):
            part = nl.multiply(tile[:, nl.ds(tap, length - 2)], weights[:, nl.ds(tap, 1)])
            total += part
        nl.store(out[nl.ds(c * 128, 128), :], total)
    return out


def prefetched(x):
    """The next tile is loaded while this one is computed."""
    out = out_like(x)
    count = x.shape[1] // 64
    now = nl.ndarray((nl.par_dim(128), 64), dtype=nl.float32)
    now[...] = nl.load(x[:, 0:64])
    for j in nl.sequential_range(count):
        nl.store(out[:, nl.ds(j * 64, 64)], nl.exp(now))
        later = nl.arange(64)[None, :] + (j + 1) * 64
        now[...] = nl.load(x[nl.arange(128)[:, None], later], mask=(later < x.shape[1]))
    return out


def rounded(x):
    """Rounded to bfloat16 on the way."""
    out = out_like(x)
    tile = nl.load(x, dtype=nl.bfloat16)
    nl.store(out, nl.multiply(tile, 2.0, dtype=nl.float32))
    return out


def two_results(x, y):
    """A sum and a difference, y loaded transposed."""
    total, difference = out_like(x), out_like(x)
    tile = nl.load(x)
    turned = nl.load_transpose2d(y)
    nl.store(total, nl.add(tile, turned))
    nl.store(difference, nl.subtract(tile, turned))
    return total, difference


def where_masked(x, y):
    """nl.where with a mask made from positions."""
    out = out_like(x)
    tile, other = nl.load(x), nl.load(y)
    rows = nisa.iota(nl.arange(128)[:, None] + 0 * nl.arange(128)[None, :], dtype=nl.int32)
    columns = nisa.iota(0 * nl.arange(128)[:, None] + nl.arange(128)[None, :], dtype=nl.int32)
    nl.store(out, nl.where(nl.greater_equal(rows, columns), tile, other))
    return out


def gated(x, y):
    """A GELU by nl.erf, a sigmoid written out, a residual."""
    out = out_like(x)
    a, b = nl.load(x), nl.load(y)
    left = nl.multiply(nl.multiply(a, 0.5), nl.add(nl.erf(nl.multiply(a, 0.70710678118)), 1.0))
    right = nl.divide(1.0, nl.add(nl.exp(nl.negative(b)), 1.0))
    nl.store(out, nl.add(nl.multiply(left, right), a))
    return out


def gathered(x):
    out = out_like(x)
    tile = nl.load(x)
    order = nisa.iota(63 - nl.arange(64)[None, :] + 0 * nl.arange(128)[:, None], dtype=nl.uint32)
    nl.store(out, nl.gather_flattened(data=tile, indices=order))
    return out


def above_second(x):
    """What is no less than the second largest of a row, and the largest and the nineteenth beside it."""
    out, tile = nl.ndarray((128, 66), dtype=x.dtype, buffer=nl.shared_hbm), nl.load(x)
    top = nisa.max8(src=tile)
    nl.store(out[:, 0:64], nl.multiply(tile, nl.greater_equal(tile, top[:, 1:2])))
    nl.store(out[:, 64:65], top[:, 0:1])
    for _ in nl.static_range(2):
        tile = nisa.nc_match_replace8(data=tile, vals=top, imm=-3.0e38)
        top = nisa.max8(src=tile)
    nl.store(out[:, 65:66], top[:, 2:3])
    return out


# Without an algorithm.


def random_numbers(x):
    out = out_like(x)
    nl.store(out, nl.multiply(nl.load(x), nl.rand(x.shape)))
    return out


def eight_replaced(x):
    out, tile = out_like(x), nl.load(x)
    nl.store(out, nisa.nc_match_replace8(data=tile, vals=nisa.max8(src=tile), imm=0.0))
    return out


def turned_around(x):
    """Squares what it has and adds, eight times: no first-order recurrence."""
    out = out_like(x)
    tile = nl.load(x)
    state = nl.zeros((nl.par_dim(128), 64), dtype=nl.float32)
    for _ in nl.sequential_range(8):
        state[...] = nl.add(nl.square(state), tile)
    nl.store(out, state)
    return out


X = (256, 256)
STYLES = {
    flash_attention: ([(64, 256), (64, 256), (256, 64)], ATTENTION),
    layernorm_statistics: ([X, (256,), (256,)], LAYERNORM.format(mean="0.00390625")),
    layernorm_one_pass: ([X, (256,), (256,)], LAYERNORM.format(mean="0.00390625")),
    matmul_unrolled: ([(384, 256), (384, 1024)], MATMUL),
    heads_unrolled: (
        [(64, 512)] * 2,
        "product[b, m, n] = sum_l q[l, b, m] * k[l, b, n]\n"
        "largest[b, m] = max_n product[b, m, n]\n"
        "total[b, m] = sum_n exp(product[b, m, n] - largest[b, m])\n"
        "out[b, m, n] = exp(product[b, m, n] - largest[b, m]) / total[b, m]",
    ),
    above_second: (
        [(128, 64)],
        "largest_19[m] = largest_19_k x[m, k]\n"
        "largest[m] = max_k x[m, k]\n"
        "largest_2[m] = largest_2_k x[m, k]\n"
        "out[m, n] = largest_19[m] if n >= 65 else (largest[m] if n >= 64 else "
        "x[m, n] * (x[m, n] >= largest_2[m]))",
    ),
    gelu_mlp: ([(256, 128), (256, 256), (256, 64)], GELU_MLP),
    cumulative_sum: ([X], "out[m, n] = out[m, n - 1] + x[m, n], from 0"),
    depthwise_convolution: ([(128, 66), (128, 3)], "out[m, n] = sum_k x[m, k + n] * w[m, k]"),
    prefetched: ([(128, 256)], "out[m] = exp(x[m])"),
    two_results: (
        [(128, 128)] * 2,
        "out[m, n] = x[m, n] + y[n, m]\nout2[m, n] = x[m, n] - y[n, m]",
    ),
    where_masked: ([(128, 128)] * 2, "out[m, n] = x[m, n] if m >= n else y[m, n]"),
    gated: ([(128, 128)] * 2, "out[m] = gelu(x[m]) * sigmoid(y[m]) + x[m]"),
    rounded: ([(128, 64)], "out[m] = bfloat16(x[m]) * 2"),
    gathered: ([(128, 64)], "out[m, n] = x[m, -n + 63]"),
}
