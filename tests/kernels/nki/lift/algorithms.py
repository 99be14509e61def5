"""Algorithms of the main classes, written by hand: what lifting would give, without a kernel."""

from __future__ import annotations

from dataclasses import replace

from accelopt.algorithm.algorithm import (
    Algorithm,
    Apply,
    Array,
    Constant,
    Expression,
    Map,
    Read,
    Reduce,
    Scan,
    Where,
)
from accelopt.algorithm.contraction import contraction, factors_of
from accelopt.algorithm.index import Axis, Index, index_of

EPS = 1e-5
NARROW = "bfloat16"


def array(name: str, *shape: int, given: tuple[int, ...] | None = None) -> Array:
    return Array(name, shape, "float32", given or shape)


def read(name: str, *places: Axis | Index) -> Read:
    return Read(name, tuple(p if isinstance(p, Index) else index_of(p) for p in places))


def apply(function: str, *arguments: Expression | float) -> Apply:
    made = (Constant(a) if isinstance(a, (int, float)) else a for a in arguments)
    return Apply(function, tuple(made))


def times(*factors: Expression | float) -> Expression:
    first, *rest = factors
    result = Constant(first) if isinstance(first, (int, float)) else first
    for factor in rest:
        result = apply("multiply", result, factor)
    return result


def matmul(m_size: int, k_size: int, n_size: int) -> Algorithm:
    """lhs in tiles of 128 rows and columns, as NKIBench gives it."""
    m, k, n = Axis("m", m_size), Axis("k", k_size), Axis("n", n_size)
    given = (m_size // 128, 128, k_size // 128, 128)
    return Algorithm(
        "matmul",
        (array("lhs", m_size, k_size, given=given), array("rhs", k_size, n_size)),
        (Reduce("out", (m, n), (k,), "add", times(read("lhs", m, k), read("rhs", k, n))),),
        (array("out", m_size, n_size, given=(m_size // 128, 128, n_size)),),
    )


def transpose_matmul(m_size: int, k_size: int, n_size: int) -> Algorithm:
    m, k, n = Axis("m", m_size), Axis("k", k_size), Axis("n", n_size)
    return Algorithm(
        "transpose_matmul",
        (array("lhs", k_size, m_size), array("rhs", k_size, n_size)),
        (Reduce("out", (m, n), (k,), "add", times(read("lhs", k, m), read("rhs", k, n))),),
        (array("out", m_size, n_size),),
    )


def rmsnorm_matmul(m_size: int, k_size: int, n_size: int) -> Algorithm:
    m, k, n = Axis("m", m_size), Axis("k", k_size), Axis("n", n_size)
    x = read("x", m, k)
    mean = times(read("square", m), 1 / k_size)
    normal = times(x, apply("rsqrt", apply("add", mean, EPS)), read("gain", k))
    return Algorithm(
        "rmsnorm_matmul",
        (array("x", m_size, k_size), array("w", k_size, n_size), array("gain", k_size)),
        (
            Reduce("square", (m,), (k,), "add", apply("square", x)),
            Map("normal", (m, k), normal),
            Reduce("out", (m, n), (k,), "add", times(read("normal", m, k), read("w", k, n))),
        ),
        (array("out", m_size, n_size),),
    )


def matmul_add_rmsnorm(m_size: int, k_size: int, n_size: int) -> Algorithm:
    m, k, n = Axis("m", m_size), Axis("k", k_size), Axis("n", n_size)
    y = read("y", m, n)
    mean = times(read("square", m), 1 / n_size)
    scale = apply("rsqrt", apply("add", mean, EPS))
    return Algorithm(
        "matmul_add_rmsnorm",
        (
            array("x", m_size, k_size), array("w", k_size, n_size), array("z", m_size, n_size),
            array("gain", n_size),
        ),
        (
            Reduce("p", (m, n), (k,), "add", times(read("x", m, k), read("w", k, n))),
            Map("y", (m, n), apply("add", read("p", m, n), read("z", m, n))),
            Reduce("square", (m,), (n,), "add", apply("square", y)),
            Map("out", (m, n), times(y, scale, read("gain", n))),
        ),
        (array("out", m_size, n_size),),
    )  # fmt: skip


def _softmax(scores: Expression, *rows: Axis, along: Axis, out: str) -> tuple[Reduce | Map, ...]:
    every = (*rows, along)
    shifted = apply("subtract", scores, read("largest", *rows))
    weight = read("weight", *every)
    return (
        Reduce("largest", rows, (along,), "maximum", scores),
        Map("weight", every, apply("exp", shifted)),
        Reduce("total", rows, (along,), "add", weight),
        Map(out, every, apply("divide", weight, read("total", *rows))),
    )


def softmax(m_size: int, n_size: int) -> Algorithm:
    m, n = Axis("m", m_size), Axis("n", n_size)
    definitions = _softmax(times(read("x", m, n), 0.25), m, along=n, out="out")
    return Algorithm(
        "softmax", (array("x", m_size, n_size),), definitions, (array("out", m_size, n_size),)
    )


def bmm_softmax(batches: int, m_size: int, k_size: int, n_size: int) -> Algorithm:
    b, m, k, n = Axis("b", batches), Axis("m", m_size), Axis("k", k_size), Axis("n", n_size)
    product = Reduce("s", (b, m, n), (k,), "add", times(read("lhs", b, m, k), read("rhs", b, k, n)))
    return Algorithm(
        "bmm_softmax",
        (array("lhs", batches, m_size, k_size), array("rhs", batches, k_size, n_size)),
        (product, *_softmax(read("s", b, m, n), b, m, along=n, out="out")),
        (array("out", batches, m_size, n_size),),
    )


def attention(length: int, heads: int, width: int, repeat: int = 2) -> Algorithm:
    """Grouped queries: `repeat` heads of q share one of k and v."""
    h, q, key = Axis("h", heads * repeat), Axis("q", length), Axis("key", length)
    d, e = Axis("d", width), Axis("e", width)
    shared = index_of(h) // repeat
    product = times(read("q", q, h, d), read("k", key, shared, d))
    scores = times(read("s", h, q, key), width**-0.5)
    return Algorithm(
        "attention",
        (
            array("q", length, heads * repeat, width), array("k", length, heads, width),
            array("v", length, heads, width),
        ),
        (
            Reduce("s", (h, q, key), (d,), "add", product),
            *_softmax(scores, h, q, along=key, out="p"),
            Reduce("out", (h, q, e), (key,), "add", times(read("p", h, q, key), read("v", key, shared, e))),
        ),
        (array("out", heads * repeat, length, width),),
    )  # fmt: skip


def causal_attention(length: int, width: int) -> Algorithm:
    """One head; keys behind a query are given a large negative number."""
    q, key, d, e = Axis("q", length), Axis("key", length), Axis("d", width), Axis("e", width)
    product = times(read("query", q, d), read("k", key, d))
    seen = index_of(q) - index_of(key)
    scores = Where((seen,), times(read("s", q, key), width**-0.5), Constant(-1e30))
    return Algorithm(
        "causal_attention",
        (array("query", length, width), array("k", length, width), array("v", length, width)),
        (
            Reduce("s", (q, key), (d,), "add", product),
            *_softmax(scores, q, along=key, out="p"),
            Reduce("out", (q, e), (key,), "add", times(read("p", q, key), read("v", key, e))),
        ),
        (array("out", length, width),),
    )


def banded(m_size: int, n_size: int) -> Algorithm:
    """Added masks, a window of two conditions, and a choice of two tiles."""
    m, n = Axis("m", m_size), Axis("n", n_size)
    ahead = index_of(m) - index_of(n)
    bias = Where((ahead,), Constant(0.0), Constant(-3.0))
    near = Where((ahead + 64, ahead * -1 + 64), read("x", m, n), read("y", m, n))
    return Algorithm(
        "banded",
        (array("x", m_size, n_size), array("y", m_size, n_size)),
        (Map("out", (m, n), apply("exp", apply("add", near, bias))),),
        (array("out", m_size, n_size),),
    )


def lora(m_size: int, k_size: int, n_size: int, rank: int) -> Algorithm:
    m, k, n, r = Axis("m", m_size), Axis("k", k_size), Axis("n", n_size), Axis("r", rank)
    return Algorithm(
        "lora",
        (
            array("x", m_size, k_size), array("w", k_size, n_size), array("a", k_size, rank),
            array("b", rank, n_size),
        ),
        (
            Reduce("t", (m, r), (k,), "add", times(read("x", m, k), read("a", k, r))),
            Reduce("p", (m, n), (k,), "add", times(read("x", m, k), read("w", k, n))),
            Reduce("q", (m, n), (r,), "add", times(read("t", m, r), read("b", r, n))),
            Map("out", (m, n), apply("add", read("p", m, n), read("q", m, n))),
        ),
        (array("out", m_size, n_size),),
    )  # fmt: skip


def swiglu(m_size: int, k_size: int, n_size: int) -> Algorithm:
    m, k, n, j = Axis("m", m_size), Axis("k", k_size), Axis("n", n_size), Axis("j", k_size)
    gate = read("g", m, n)
    silu = apply("divide", gate, apply("add", apply("exp", apply("negative", gate)), 1.0))
    return Algorithm(
        "swiglu",
        (
            array("x", m_size, k_size), array("up", k_size, n_size),
            array("down", n_size, k_size), array("gate", k_size, n_size),
        ),
        (
            Reduce("u", (m, n), (k,), "add", times(read("x", m, k), read("up", k, n))),
            Reduce("g", (m, n), (k,), "add", times(read("x", m, k), read("gate", k, n))),
            Map("h", (m, n), times(silu, read("u", m, n))),
            Reduce("out", (m, j), (n,), "add", times(read("h", m, n), read("down", n, j))),
        ),
        (array("out", m_size, k_size),),
    )  # fmt: skip


def layernorm(m_size: int, n_size: int) -> Algorithm:
    m, n = Axis("m", m_size), Axis("n", n_size)
    centred = read("centred", m, n)
    variance = times(read("squares", m), 1 / n_size)
    scale = apply("rsqrt", apply("add", variance, EPS))
    return Algorithm(
        "layernorm",
        (array("x", m_size, n_size), array("gain", n_size), array("shift", n_size)),
        (
            Reduce("total", (m,), (n,), "add", read("x", m, n)),
            Map("mean", (m,), times(read("total", m), 1 / n_size)),
            Map("centred", (m, n), apply("subtract", read("x", m, n), read("mean", m))),
            Reduce("squares", (m,), (n,), "add", apply("square", centred)),
            Map(
                "out", (m, n),
                apply("add", times(centred, scale, read("gain", n)), read("shift", n)),
            ),
        ),
        (array("out", m_size, n_size),),
    )  # fmt: skip


def adamw(m_size: int, n_size: int) -> Algorithm:
    m, n = Axis("m", m_size), Axis("n", n_size)
    theta, g, first, second = (read(name, m, n) for name in ("theta", "g", "m", "v"))
    moved = apply("add", times(first, 0.9), times(g, 0.1))
    spread = times(apply("add", times(second, 0.999), times(g, 0.001, g)), 1000.0)
    root = apply("add", apply("sqrt", spread), 1e-8)
    step = apply("divide", times(moved, 0.01), root)
    return Algorithm(
        "adamw",
        tuple(array(name, m_size, n_size) for name in ("theta", "g", "m", "v")),
        (Map("out", (m, n), apply("subtract", times(theta, 1 - 1e-5), step)),),
        (array("out", m_size, n_size),),
    )


def rope(d_size: int, s_size: int) -> Algorithm:
    """The two halves of d are turned against each other; one Map with a condition on d."""
    half = d_size // 2
    d, s = Axis("d", d_size), Axis("s", s_size)
    at = index_of(d)
    upper = apply("subtract", times(read("x", at, s), read("cos", at, s)),
                  times(read("x", at + half, s), read("sin", at, s)))  # fmt: skip
    lower = apply("add", times(read("x", at - half, s), read("sin", at - half, s)),
                  times(read("x", at, s), read("cos", at - half, s)))  # fmt: skip
    return Algorithm(
        "rope",
        (array("x", d_size, s_size), array("cos", half, s_size), array("sin", half, s_size)),
        (Map("out", (d, s), Where((at * -1 + (half - 1),), upper, lower)),),
        (array("out", d_size, s_size),),
    )


def rotated(m_size: int, half: int) -> Algorithm:
    """Halves of short rows turned by angles that the kernel has as one row of numbers."""
    m, n = Axis("m", m_size), Axis("n", 2 * half)
    second, angle = index_of(n) - half, index_of(m) * half + index_of(n)

    def turn(place: Index, other: Index, angle: Index, function: str) -> Expression:
        left = times(read("x", m, place), read("cos", angle))
        return apply(function, left, times(read("x", m, other), read("sin", angle)))

    first = turn(index_of(n), index_of(n) + half, angle, "subtract")
    return Algorithm(
        "rotated",
        (
            array("x", m_size, 2 * half), array("cos", m_size * half, given=(m_size, half)),
            array("sin", m_size * half, given=(m_size, half)),
        ),
        (Map("out", (m, n), Where((second,), turn(index_of(n), second, angle - half, "add"), first)),),
        (array("out", m_size, 2 * half),),
    )  # fmt: skip


def state_space(channels: int, length: int, states: int) -> Algorithm:
    c, s, t = Axis("c", channels), Axis("s", states), Axis("t", length)
    decay = apply("exp", times(read("delta", c, t), read("a", c, s)))
    term = times(read("delta", c, t), read("b", s, t), read("u", c, t))
    return Algorithm(
        "state_space",
        (
            array("delta", channels, length), array("u", channels, length),
            array("a", channels, states), array("b", states, length), array("c", states, length),
        ),
        (
            Scan("h", (c, s, t), t, "multiply", decay, "add", term, Constant(0.0)),
            Reduce("out", (c, t), (s,), "add", times(read("c", s, t), read("h", c, s, t))),
        ),
        (array("out", channels, length),),
    )  # fmt: skip


def cumulative_sum(m_size: int, n_size: int) -> Algorithm:
    m, n = Axis("m", m_size), Axis("n", n_size)
    one, zero = Constant(1.0), Constant(0.0)
    return Algorithm(
        "cumulative_sum",
        (array("x", m_size, n_size),),
        (Scan("out", (m, n), n, "multiply", one, "add", read("x", m, n), zero),),
        (array("out", m_size, n_size),),
    )


def bias_and_scale(m_size: int, n_size: int) -> Algorithm:
    """One number a row, from two arrays, and one a column."""
    m, n = Axis("m", m_size), Axis("n", n_size)
    scaled = times(read("x", m, n), read("scale", m))
    shifted = apply("add", apply("add", scaled, read("bias", m)), read("shift", n))
    return Algorithm(
        "bias_and_scale",
        (
            array("x", m_size, n_size), array("scale", m_size), array("bias", m_size),
            array("shift", n_size),
        ),
        (Map("out", (m, n), apply("tanh", shifted)),),
        (array("out", m_size, n_size),),
    )  # fmt: skip


def depthwise(channels: int, length: int, taps: int) -> Algorithm:
    """A convolution of every channel by itself; zeros stand before the first element."""
    c, t, k = Axis("c", channels), Axis("t", length), Axis("k", taps)
    place = index_of(t) + index_of(k) - (taps - 1)
    term = times(read("x", c, place), read("w", c, k))
    return Algorithm(
        "depthwise",
        (array("x", channels, length), array("w", channels, taps), array("bias", channels)),
        (
            Reduce("y", (c, t), (k,), "add", Where((place,), term, Constant(0.0))),
            Map("out", (c, t), apply("silu", apply("add", read("y", c, t), read("bias", c)))),
        ),
        (array("out", channels, length),),
    )


def pooled(channels: int, height: int, width: int) -> Algorithm:
    """The largest of every two by two elements."""
    c, h, w = Axis("c", channels), Axis("h", height // 2), Axis("w", width // 2)
    a, b = Axis("a", 2), Axis("b", 2)
    source = read("x", c, index_of(h), index_of(a), index_of(w), index_of(b))
    return Algorithm(
        "pooled",
        (array("x", channels, height // 2, 2, width // 2, 2, given=(channels, height, width)),),
        (Reduce("out", (c, h, w), (a, b), "maximum", source),),
        (array("out", channels, height // 2, width // 2),),
    )


def convolution(length: int, taps: int, channels: int, filters: int) -> Algorithm:
    """A product over taps and channels."""
    t, f = Axis("t", length), Axis("f", filters)
    k, c = Axis("k", taps), Axis("c", channels)
    place = index_of(t) + index_of(k)
    return Algorithm(
        "convolution",
        (array("x", length + taps - 1, channels), array("w", taps, channels, filters)),
        (Reduce("out", (t, f), (k, c), "add", times(read("x", place, c), read("w", k, c, f))),),
        (array("out", length, filters),),
    )


def renamed(name: str, algorithm: Algorithm) -> Algorithm:
    """The same under another name."""
    return replace(algorithm, name=name)


def narrow(algorithm: Algorithm) -> Algorithm:
    """The same of and to bfloat16, with operands of products rounded to it."""

    def rounded(factor: Expression) -> Expression:
        plain = isinstance(factor, Read) and any(factor.array == a.name for a in algorithm.inputs)
        return factor if plain else Apply(NARROW, (factor,))

    definitions = []
    for definition in algorithm.definitions:
        if isinstance(definition, Reduce) and contraction(definition):
            factors = map(rounded, factors_of(definition.expression))
            definition = replace(definition, expression=times(*factors))
        definitions.append(definition)
    inputs, outputs = (
        tuple(replace(array, dtype=NARROW) for array in arrays)
        for arrays in (algorithm.inputs, algorithm.outputs)
    )
    name = f"{algorithm.name}_{NARROW}"
    return Algorithm(name, inputs, tuple(definitions), outputs)


SMALL = (
    matmul(256, 256, 1024),
    transpose_matmul(256, 256, 912),
    rmsnorm_matmul(256, 256, 512),
    matmul_add_rmsnorm(256, 256, 1024),
    softmax(256, 1536),
    bmm_softmax(2, 256, 64, 1024),
    attention(512, 2, 128),
    lora(512, 256, 1024, 128),
    swiglu(512, 256, 512),
    layernorm(256, 1024),
    adamw(256, 768),
    rope(128, 4096),
    state_space(128, 1024, 4),
    cumulative_sum(256, 2048),
    bias_and_scale(512, 768),
    causal_attention(512, 64),
    banded(256, 1024),
    depthwise(256, 1024, 4),
    pooled(128, 16, 32),
    convolution(256, 3, 256, 512),
    rotated(2048, 32),
    renamed("ragged_layernorm", layernorm(263, 1024)),
    renamed("ragged_matmul", rmsnorm_matmul(263, 256, 512)),
    renamed("ragged_scan", cumulative_sum(263, 1024)),
    narrow(bias_and_scale(256, 512)),
    narrow(matmul(256, 256, 1024)),
    narrow(attention(512, 2, 128)),
    narrow(swiglu(512, 256, 512)),
    narrow(layernorm(256, 1024)),
    narrow(cumulative_sum(128, 1024)),
)
