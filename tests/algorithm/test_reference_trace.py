"""References in NumPy, traced and evaluated, against what NumPy itself computes."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accelopt.algorithm.reference_trace import TracedReference, trace_reference
from accelopt.algorithm.traced_array import NotTraced
from tests.algorithm.evaluation import evaluate

HEAD = """
import math
import numpy as np
try:
    import scipy.special
    from scipy.special import logsumexp
except ImportError:
    pass
from numpy.lib.stride_tricks import sliding_window_view
"""

FORWARDS = {
    "views": "return x.reshape(2, 3, 8).transpose(1, 0, 2).swapaxes(0, 2)[..., None, 1:, ::-1]",
    "broadcasting": "return x[:, None, :] * w[None, :, :4][:, :, :1] + x.sum(0)",
    "joining": "return np.concatenate([x, 2 * x[:, :3]], axis=1), np.stack([x, x + 1], axis=1)",
    "choices": "return np.where(x > 0, np.minimum(x, 1), np.maximum(x, -1)), np.clip(x, -.5, .5)",
    "functions": "a = np.abs(x) + 1\nreturn np.log(a) * np.sqrt(a) + np.tanh(x) ** 3 + a ** -1.5 + np.exp2(x) - np.log1p(a)",
    "reductions": "return x.mean(0), x.var(axis=1, keepdims=True), x.std(), x.max(-1), x.min(0), np.prod(x[:, :3], axis=1), x.sum()",
    "products": "return x @ w, np.einsum('ij,kj->ik', x, x), np.dot(x, w), np.tensordot(x, w, 1), x[0] @ w, np.outer(x[0], x[1])",
    "running": "return np.cumsum(x, axis=1), np.cumsum(x), np.cumprod(x[:, :3], 0), np.maximum.accumulate(x, axis=1)",
    "masks": "i = np.arange(6)[:, None]\nj = np.arange(8)[None]\nkept = (j <= i) & (j > i - 3) | (j == 7)\nreturn np.where(kept, x, -1e9), np.tril(x, 1), np.triu(x) * np.eye(6, 8), x * ~kept",
    "assigned_mask": "y = x.copy()\ny[y < 0] = 0\nreturn y",
    "places": "return x[:, np.arange(7, 0, -2)], np.take(x, [1, 1, 3], axis=0), np.delete(x, [1, -2], axis=0), np.delete(x, 7), x[np.arange(6), np.arange(6) % 4], np.repeat(x, 2, 1), np.tile(x, (2, 1))",
    "padding": "return np.pad(x, ((1, 2), (0, 3))), np.pad(x, 2, mode='reflect'), np.roll(x, 3, axis=1), np.flip(x, 0), np.diff(x)",
    "windows": "return sliding_window_view(x, (2, 3), axis=(0, 1))[::2, ::3].max((-1, -2)), np.lib.stride_tricks.sliding_window_view(x, 3, axis=1) @ w[:3, 0]",
    "interleaved": "y = np.empty_like(x)\ny[:, ::2] = x[:, 1::2]\ny[:, 1::2] = -x[:, ::2]\nreturn y",
    "by_rows": "y = np.empty((6, 5), x.dtype)\nfor n, row in enumerate(x):\n    y[n] = row[:5] * w[n, :5]\n    y[n] /= np.sum(y[n])\nreturn y",
    "grouped_rows": "y = np.zeros((6, 4), x.dtype)\nfor a in range(3):\n    for b in range(2):\n        y[2 * a + b] = x[a, :4] @ w[b * 4:b * 4 + 4, :4]\nreturn y",
    "taps": "y = np.zeros_like(x)\nfor k in range(4):\n    y[:, k:] += x[:, :8 - k] * w[k, 0]\nreturn y",
    "recurrence": "h = np.zeros(6, x.dtype)\ny = np.zeros_like(x)\nfor t in range(8):\n    h = w[t, :6] * h + x[:, t]\n    y[:, t] = h\nreturn y, h",
    "recurrence_of_sums": "h = x[:, 0]\nc = []\nfor t in range(1, 8):\n    h = h * 0.5 + x[:, t] * x[:, t]\n    c.append((h * w[0, :6]).sum())\nreturn np.stack(c)",
    "two_states": "a = np.zeros(6, x.dtype)\nb = np.ones(6, x.dtype)\nfor t in range(8):\n    a += x[:, t]\n    b = b * 0.9 + a\nreturn b",
    "running_extreme": "m = np.full(6, -1e9)\nfor t in range(8):\n    m = np.maximum(m, x[:, t])\nreturn m",
    "halves": "for step in (4, 2, 1):\n    x = x[:, :step] + x[:, step:2 * step]\nreturn x",
    "stencil": "for _ in range(3):\n    new = x.copy()\n    new[1:-1, 1:-1] = x[1:-1, 1:-1] + .1 * (x[:-2, 1:-1] + x[2:, 1:-1])\n    x = new\nreturn x",
    "swapped": "a, b = x[0], x[1]\nfor _ in range(5):\n    a, b = b, a + b\nreturn a",
    "normalised": "e = np.exp(x - x.max(-1, keepdims=True))\ne /= e.sum(-1, keepdims=True)\nreturn np.log(e), -np.take_along_axis(e, t[:, None], 1)",
    "in_place": "y = x.T\ny *= 2\nnp.add(y, 1, out=y)\nreturn x, y",
    "listed": "return np.array([x[0], x[2]]) + np.asarray(w[0]), np.vstack([x[0], x[1]]), np.hstack([x, x])",
    "integers": "n = np.arange(8)\nreturn x * (n // 3) + n % 3, x * np.linspace(0, 1, 8), (x > 0).sum(1)",
    "norms": "return np.linalg.norm(x, axis=1), x / np.linalg.norm(x)",
    "vectorised": "return np.vectorize(math.erf)(x / math.sqrt(2))",
    "lists": "y = []\nfor h in range(2):\n    q = x[:, 4 * h:4 * h + 4]\n    p = np.exp(q @ q.T)\n    y.append(p / p.sum(1, keepdims=True) @ q)\nreturn np.concatenate(y, 1)",
    "running_mean": "m = np.zeros(6)\nfor n in range(8):\n    m = m + (x[:, n] - m) / (n + 1)\nreturn m",
    "online_softmax": "m = np.full(6, -1e30)\ns = np.zeros(6)\nfor j in range(0, 8, 2):\n    b = x[:, j:j + 2]\n    n = np.maximum(m, b.max(1))\n    s = s * np.exp(m - n) + np.exp(b - n[:, None]).sum(1)\n    m = n\nreturn m + np.log(s)",
    "gated": "h = np.zeros(6)\nfor t in range(4):\n    z = 1 / (1 + np.exp(-(x[:, t] + h)))\n    h = (1 - z) * h + z * np.tanh(x[:, t + 4] + h)\nreturn h",
    "from_nothing": "h, s = np.zeros(8), np.zeros((8, 8))\nfor r in x:\n    h = np.tanh(r + h @ w)\n    s = s + np.outer(r, h - r @ s) * .1\nreturn h, s",
    "blocks": "c = np.zeros((6, 8))\nfor i in range(0, 6, 3):\n    for j in range(0, 8, 4):\n        for k in range(0, 8, 2):\n            c[i:i + 3, j:j + 4] += x[i:i + 3, k:k + 2] @ w[k:k + 2, j:j + 4]\nreturn c",
    "convolution": "o = np.zeros((4, 6))\nfor a in range(3):\n    for b in range(3):\n        o += x[a:a + 4, b:b + 6] * w[a, b]\nreturn o",
    "scattered": "o = np.zeros(8)\nfor i in range(6):\n    o[i] += x[i, 0]\n    o[(i * 3) % 8] += 1\nreturn o",
    "both_axes": "y = x.copy()\nfor i in range(1, 6):\n    for j in range(1, 8):\n        y[i, j] += 0.1 * y[i - 1, j] + 0.1 * y[i, j - 1]\nreturn y",
    "control": "a = np.zeros(6)\nfor j in range(8):\n    if j % 2:\n        continue\n    if j == 6:\n        break\n    a = a * 0.5 + x[:, j]\nreturn a",
    "aliases": "a = np.zeros((6, 8))\nb = a\nfor _ in range(4):\n    b += x\nreturn a",
    "two_buffers": "a = x.copy()\nb = np.empty_like(a)\nfor _ in range(4):\n    b[:, 1:-1] = (a[:, :-2] + a[:, 2:]) / 2\n    b[:, 0] = a[:, 0]\n    b[:, -1] = a[:, -1]\n    a, b = b, a\nreturn a",
    "backward_in_time": "g = np.zeros(6)\no = np.zeros_like(x)\nfor t in reversed(range(8)):\n    g = g * 0.9 + x[:, t]\n    o[:, t] = g\nreturn o",
    "carried_over_chunks": "o = np.empty((6, 8))\nc = np.zeros((6, 1))\nfor s in range(0, 8, 2):\n    p = np.cumsum(x[:, s:s + 2], 1) + c\n    o[:, s:s + 2] = p\n    c = p[:, -1:]\nreturn o",
    "extrema": "y = np.floor(x * 2)\nreturn y.argmax(1), np.argmin(y, axis=0), np.argmax(y), y.argmin(1, keepdims=True)",
    "looked_up": "n = t.repeat(9)\nreturn w[n], 2 * np.take(w, n[:, None] // 2, axis=0), w[t[::-1, None], t[None]], np.exp(w)[n]",
    "put_at": "y = np.exp(x)\ni = np.arange(6)\ny[i, t] -= 1\ny[i, 7 - t] = x[:, 0] * y[i, t]\nreturn y / max((t > 2).sum(), 1)",
    "put_in_rows": "y, v = np.zeros((9, 8)), np.ones((2, 9, 8))\ny[t] = x\nv[t % 2, t] = 2 * x\nnp.add.at(w, t, x)\nu = x.copy()\nu[t // 2, t] = w[0, :6]\nreturn y, v, w, u",
    "bits": "n = (x > 0) * 5 + (x > 1)\nreturn n & 3, n | 8, n >> 1, (n << 1) ^ 5, -n >> 1, 6 & n",
    "bands": "a = np.eye(6, 8, 1, dtype=bool)\nreturn np.where(a, x, -x), np.where(np.abs(np.arange(300)[:, None] - np.arange(300)) < 2, x[0, 0], 1 - np.eye(300)), x * ((np.arange(8) < 2) | (np.arange(8) > 5))",
    "several": "p, q, r = np.array_split(x, 3, axis=1)\nreturn p.sum(1), q, r, np.average(x, axis=1, weights=np.arange(8) + 1), np.ptp(x, axis=0), np.count_nonzero(x > 0, axis=1), np.select([x > 1, x < -1], [1.0, -1.0], x)",
    "diagonals": "s = x[:, :6] @ w[:6, :6]\nd = s.copy()\nnp.fill_diagonal(d, -1.0)\nreturn np.diagonal(s, 1), np.diag(s), np.trace(s), np.diag(x[0], -2), d",
    "numbers": "a = float(x.sum()) + np.float32(x[0, 0]) + int(3.7)\nreturn a, np.float32(x * 2), x.mean().item(), isinstance(x, np.ndarray) * x, np.int32(np.argmax(x, 1)), np.mean([x[:, 0], x[:, 1]], axis=0)",
    "rounded": "return np.rint(x * 3), np.rint(x * 1e12), np.where(x > 0, np.rint(x), 2 * x).clip(-1, 1), np.round(x, 2), np.clip(np.round(x / 0.1), -20, 12).astype(np.int8), (x * 3).round()",
    "in_order": "i = np.argsort(-x, axis=-1)[:, :2]\nj = np.argsort(x)[:, ::-1][:, :3]\nreturn i, np.take_along_axis(x, i, -1), j, np.sort(x, axis=0), np.where(x >= np.sort(x)[:, -2:-1], x, 0), np.argpartition(-w, 1, axis=0)[0]",
    "undefined_elsewhere": "s = x.sum(1)\nreturn np.divide(1.0, s, out=np.zeros_like(s), where=s > 0), np.mean(x, axis=1, where=w[:6] > 0), np.sum(x, 1, where=x > 0)",
    "chosen": "y, m = np.empty_like(x), x >= 0\ny[m] = 1 / (1 + np.exp(-x[m]))\ny[~m] = np.exp(x[~m]) / (1 + np.exp(x[~m]))\nz = x.copy()\nz[z < 0] *= 2\nreturn y, z, x[m].mean(), x[t > 2].sum(axis=0), np.max(x[m]), x[:, np.array([True, False] * 4)]",
    "one_of": "return x[np.arange(6), t], np.eye(8)[t] @ w, np.tril(np.ones((8, 8)))[t], (x[..., None] * w[t][:, None, :])[0], w[t, None], x[t[:, None] // 2, np.arange(8)[None]]",
    "extremes": "m = np.where(x > 1, x, -np.inf).max(1)\nb = np.full((8, 8), -9.0)\nnp.maximum.at(b, t, x)\nreturn np.where(np.isfinite(m), m, 0), np.where(np.isneginf(m), 0.0, 1.0), np.isinf(m), b, np.linalg.norm(x, np.inf, 1), np.linalg.norm(x, 3, axis=1), np.linalg.norm(x, axis=(0, 1))",
    "logarithms_of_sums": "return np.logaddexp.reduce(x, axis=-1), logsumexp(x, axis=0), scipy.special.softmax(x, -1), scipy.special.log_softmax(x, axis=0)",
    "convolutions": "return np.convolve(x[0], w[0, :4], 'same'), np.convolve(x[0], w[0, :4]), np.correlate(x[0], w[0, :4], 'same'), np.correlate(x[0], w[0, :3]), np.convolve(x[0, :3], w[0], mode='valid'), np.pad(x, 2, 'symmetric')",
    "of_own_code": "return np.flipud(x), np.append(x, x[:, :1], axis=1), np.column_stack([x[:, 0], x[:, 1]]), np.dstack([x, x]), np.hsplit(x, 2)[1], np.rollaxis(x[None], 2), np.linalg.multi_dot([x, w, w]), np.sinc(x), np.isclose(x, 0, atol=.1), np.block([[x, x], [w, w]]), np.einsum(x, [0, 1], w, [1, 2], [0, 2])",
    "more_functions": "return np.cbrt(x), np.arcsinh(x), np.arctanh(x / 9), np.arcsin(x / 9), np.copysign(2.0, x), np.signbit(x), np.digitize(x, [-1.0, 0.0, 1.0]), np.searchsorted([-1.0, 0.0, 1.0], x), np.bincount(t, minlength=8), np.choose(t[:, None] % 2, [x, -x])",
    "put_along": "y = np.zeros_like(x)\nnp.put_along_axis(y, t[:, None], 1.0, axis=1)\nn = x.strides[1]\nreturn y, np.lib.stride_tricks.as_strided(x, (6, 6, 3), (*x.strides, n)).sum(-1), x.ravel('F'), x.reshape(8, 6, order='F'), x.T.flat[3]",
    "axes": "return np.moveaxis(x[None], 0, -1), np.expand_dims(x, (0, 2)), np.squeeze(x[:1]), x[..., 0], np.split(w, 2, axis=1)[1], *np.atleast_2d(x[0], w)",
}  # fmt: skip


def reference(folder: Path, forward: str, arguments: str = "x, w, t") -> Path:
    """The file of a reference whose `forward` has this body."""
    path = folder / "reference.py"
    body = textwrap.indent(forward, "    ")
    path.write_text(f"{HEAD}\n\ndef forward({arguments}):\n{body}\n", encoding="utf-8")
    return path


def inputs() -> list[Any]:
    """x (6, 8), w (8, 8), t (6,) from 0 to 7."""
    random = np.random.default_rng(0)
    x, w = random.normal(size=(6, 8)), random.normal(size=(8, 8))
    return [x.astype(np.float32), w.astype(np.float32), random.integers(0, 8, 6).astype(np.int32)]


def traced(path: Path, given: list[Any]) -> TracedReference:
    """The reference in a file, traced."""
    return trace_reference(path, path.read_text(encoding="utf-8"), given)


@pytest.mark.parametrize("name", FORWARDS)
def test_an_algorithm_computes_what_numpy_does(name: str, tmp_path: Path) -> None:
    """Evidence: NumPy itself, in fp64, on inputs drawn at random."""
    if "scipy" in FORWARDS[name]:
        pytest.importorskip("scipy")
    path = reference(tmp_path, FORWARDS[name])
    found = traced(path, inputs())
    names: dict[str, Any] = {}
    exec(path.read_text(encoding="utf-8"), names)
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in inputs()]
    given = dict(zip(found.parameters, (a.copy() for a in wide), strict=True))
    returned = names["forward"](*(a.copy() for a in wide))
    wanted = returned if isinstance(returned, tuple) else (returned,)
    outputs = evaluate(found.algorithm, given)
    assert len(outputs) == len(wanted)
    for output, want in zip(outputs, wanted, strict=True):
        shown = np.asarray(output).reshape(np.shape(want))
        np.testing.assert_allclose(shown, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        ("y = x + 1\nreturn np.linalg.svd(y)[0]", "np.linalg.svd has no definition"),
        ("y = x + 1\nreturn np.unique(y)", "np.unique has no definition"),
        ("y = x + 1\nif y.max() > 3:\n    return x\nreturn y", "must not depend on numbers"),
        ("y = np.cumsum(w, 0)\nreturn y[t.repeat(64)]", "elements of what is computed"),
        ("y = x + 1\nreturn x + y[x > 0]", "a mask chooses"),
        ("y = x + 1\nreturn y @ np.ones((3, 3))", "matmul"),
        ("h = x[:, 0]\nfor t in range(10**8): h = np.tanh(h + x[:, 1])\nreturn h", "neither a sum"),
        ("y = x + 1\nreturn np.arctan2(x, y)", "np.arctan2 has no definition"),
        ("y = x + 1\nreturn y * np.random.rand(6, 8) @ w.T[:8, :2] * np.random.rand(6, 2)[:, :1] + np.random.rand(300, 6, 2)", "follows no formula"),
    ],
)  # fmt: skip
def test_what_has_no_algorithm_is_refused_with_its_line(
    forward: str, said: str, tmp_path: Path
) -> None:
    """Evidence: the line is the second of `forward`, after the two lines above it."""
    path = reference(tmp_path, forward)
    with pytest.raises(NotTraced, match=said) as refusal:
        traced(path, inputs())
    assert refusal.value.line == HEAD.count("\n") + 5
    assert str(refusal.value).startswith(f"reference.py:{refusal.value.line}: ")


@pytest.mark.parametrize("ranked", [True, False])
def test_equal_elements_are_in_order_of_their_places(ranked: bool, tmp_path: Path) -> None:
    """Evidence: NumPy's stable sort of many equal numbers, with places by one instruction and by comparisons."""
    forward = "return np.argsort(-x, axis=1, kind='stable')[:, :5], np.argsort(x, 1, kind='mergesort')[:, 1:4]"
    x, *others = inputs()
    given = [np.round(x), *others]
    path = reference(tmp_path, forward)
    found = trace_reference(path, path.read_text("utf-8"), given, ranked_places=ranked)
    first, last = evaluate(found.algorithm, dict(zip(found.parameters, given, strict=True)))
    np.testing.assert_array_equal(first, np.argsort(-given[0], axis=1, kind="stable")[:, :5])
    np.testing.assert_array_equal(last, np.argsort(given[0], axis=1, kind="stable")[:, 1:4])


def test_what_is_nearest_is_found_in_single_precision(tmp_path: Path) -> None:
    """Evidence: elements are compared with their least one as both are computed, without what all share."""
    forward = "return (x * 2e3 - 7).argmax(1), ((x * x).sum(1)[:, None] - 2 * x @ w.T + (w * w).sum(1)).argmin(1)"
    x, w, _ = given = inputs()
    found = traced(reference(tmp_path, forward), given)
    largest, nearest = evaluate(found.algorithm, dict(zip(found.parameters, given, strict=True)))
    distances = ((x[:, None].astype(np.float64) - w[None]) ** 2).sum(-1)
    np.testing.assert_array_equal(nearest, distances.argmin(1))
    np.testing.assert_array_equal(largest, x.argmax(1))


def test_arrays_without_elements_are_named(tmp_path: Path) -> None:
    """Assumption: no axis of an Algorithm is empty."""
    x, *others = inputs()
    for given, forward, said in (
        ([x[:0], *others], "return x", r"x of shape \(0, 8\) has no elements"),
        ([x, *others], "return x, x[:, :0]", r"output 1 of shape \(6, 0\) has no elements"),
    ):
        with pytest.raises(NotTraced, match=said):
            traced(reference(tmp_path, forward), given)
