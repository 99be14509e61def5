"""Algorithms: indices that join again, what definitions mean, how they read, and their JSON."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelopt.algorithm import ir
from accelopt.algorithm.axis_names import AxisNames
from accelopt.algorithm.contraction import contraction
from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.notation import algorithm_text
from tests.algorithm.evaluation import evaluate

M, N, K = Axis("m", 256), Axis("n", 96), Axis("k", 64)
m, n, k = index_of(M), index_of(N), index_of(K)


def product(*factors):
    result = factors[0]
    for factor in factors[1:]:
        result = ir.Apply("multiply", (result, factor))
    return result


def scaled_product():
    """silu of a scaled product, negative from row 100 on."""
    body = product(ir.Read("a", (m, k)), ir.Read("b", (k, n)), ir.Read("g", (k,)))
    found = ir.Read("s", (m, n))
    chosen = ir.Where((m - 100,), ir.Apply("negative", (found,)), ir.Apply("silu", (found,)))
    return ir.Algorithm(
        "scaled",
        (
            ir.Array("a", (256, 64), "float32", (256, 64)),
            ir.Array("b", (64, 96), "float32", (64, 96)),
            ir.Array("g", (64,), "float32", (1, 64)),
        ),
        (ir.Reduce("s", (M, N), (K,), "add", body), ir.Map("out", (M, N), chosen)),
        (ir.Array("out", (256, 96), "float32", (2, 128, 96)),),
    )


def test_an_axis_cut_into_blocks_and_tiles_joins_again():
    assert (m // 128) * 128 + m % 128 == m
    tile = m * 4 + 3
    assert (tile // 512 * 128 + (tile % 512) // 4) == m
    assert ((m // 4) % 32).bounds == (0, 31)
    assert str(m // 32 % 4) == "m // 32 % 4"
    assert str((m % 128) // 32 * 5 + 1) == "5*(m // 32 % 4) + 1"
    assert str(m % 128 + 7) == "m % 128 + 7"


@given(
    st.lists(st.integers(-6, 6), min_size=3, max_size=3),
    st.integers(-20, 20),
    st.lists(st.sampled_from([2, 3, 4, 8, 12]), min_size=1, max_size=3),
)
def test_indices_mean_what_integers_do(factors, constant, divisors):
    axes = [Axis("x", 5), Axis("y", 8), Axis("z", 3)]
    grids = np.ix_(*(np.arange(axis.extent) for axis in axes))
    index, numbers = index_of(axes[0]) * 0 + constant, np.full((5, 8, 3), constant)
    for axis, factor, grid in zip(axes, factors, grids, strict=True):
        index, numbers = index + index_of(axis) * factor, numbers + grid * factor
    for divisor in divisors:
        index = index // divisor * 3 + index % divisor
        numbers = numbers // divisor * 3 + numbers % divisor
        found = np.broadcast_to(index.evaluate(dict(zip(axes, grids, strict=True))), (5, 8, 3))
        assert np.array_equal(found, numbers)
        low, high = index.bounds
        assert low <= numbers.min() and numbers.max() <= high


def test_products_conditions_and_shapes():
    algorithm = scaled_product()
    rng = np.random.default_rng(1)
    a, b, g = (rng.normal(size=shape) for shape in ((256, 64), (64, 96), (1, 64)))
    s = (a * g) @ b
    expected = np.where(np.arange(256)[:, None] >= 100, -s, s / (1 + np.exp(-s)))
    (found,) = evaluate(algorithm, {"a": a, "b": b, "g": g})
    np.testing.assert_allclose(found, expected.reshape(2, 128, 96), rtol=1e-12)
    with pytest.raises(ValueError, match="a has 4 elements"):
        evaluate(algorithm, {"a": np.zeros(4), "b": b, "g": g})


def test_a_matrix_product_is_told_from_a_sum():
    found = contraction(scaled_product().definition("s"))
    assert (found.rows, found.columns, found.contracted, found.batch) == ((M,), (N,), (K,), ())
    assert found.left == product(ir.Read("a", (m, k)), ir.Read("g", (k,)))
    assert found.flops == 2 * 256 * 96 * 64
    row_sum = ir.Reduce("r", (M,), (K,), "add", ir.Apply("square", (ir.Read("a", (m, k)),)))
    assert contraction(row_sum) is None


def test_a_reduction_and_a_scan():
    x = ir.Array("x", (256, 64), "float32", (256, 64))
    largest = ir.Reduce("top", (M,), (K,), "maximum", ir.Read("x", (m, k)))
    decay = ir.Apply("exp", (ir.Read("top", (m,)),))
    scan = ir.Scan("h", (M, K), K, "multiply", decay, "add", ir.Position(k), ir.Constant(0.5))
    algorithm = ir.Algorithm(
        "scan", (x,), (largest, scan), (ir.Array("h", (256, 64), "float32", (256, 64)),)
    )
    values = np.random.default_rng(2).normal(size=(256, 64)) * 0.01
    state, expected = np.full(256, 0.5), []
    for step in range(64):
        state = np.exp(values.max(axis=1)) * state + step
        expected.append(state)
    (found,) = evaluate(algorithm, {"x": values})
    np.testing.assert_allclose(found, np.stack(expected, axis=1), rtol=1e-12)
    assert "top[m] = max_k x[m, k]" in algorithm_text(algorithm)
    assert "h[m, k] = exp(top[m]) * h[m, k - 1] + k, from 0.5" in algorithm_text(algorithm)


def test_text_and_json():
    algorithm = scaled_product()
    assert algorithm_text(algorithm) == (
        "scaled(a: 256 x 64 float32, b: 64 x 96 float32, g: 64 float32)\n"
        "    s[m, n] = sum_k a[m, k] * b[k, n] * g[k]\n"
        "    out[m, n] = -s[m, n] if m >= 100 else silu(s[m, n])\n"
        "    -> out: 256 x 96 float32"
    )
    copy = ir.from_json(algorithm.to_json())
    assert copy == algorithm and hash(copy) == hash(algorithm)
    with pytest.raises(ValueError, match="not an Algorithm"):
        ir.from_json('{"is": "Read", "array": "x", "indices": []}')


@pytest.mark.parametrize("count", [1, 30, 200])
def test_any_number_of_axes_gets_names(count):
    """Sums of windows, each over an axis of its own, as unrolled steps of a stencil leave them."""
    steps, extent = [], 300
    for step in range(count):
        axis, window = Axis(f"m{step}", extent), Axis(f"w{step}", 3)
        read = ir.Read("x", (index_of(axis) + index_of(window) + step,))
        steps.append(ir.Reduce(f"s{step}", (axis,), (window,), "add", read))
    row = Axis("r", extent)
    last = ir.Map("out", (row,), ir.Read("s0", (index_of(row),)))
    x = ir.Array("x", (512,), "float32", (512,))
    out = ir.Array("out", (extent,), "float32", (extent,))
    named = AxisNames((x,), (*steps, last), (out,)).algorithm("steps")
    for definition in named.definitions:
        own = [axis.name for axis in (*definition.axes, *getattr(definition, "reduced", ()))]
        assert len(set(own)) == len(own)
    windows = [d.reduced[0].name for d in named.definitions if isinstance(d, ir.Reduce)]
    assert len(set(windows)) == count
    data = np.arange(512, dtype=np.float32)
    (found,) = evaluate(named, {"x": data})
    assert np.array_equal(found, (data[:-2] + data[1:-1] + data[2:])[:extent])
