"""Kernels that gather rows or put rows somewhere: lifted, their Algorithm means what the reference computes; each nest of it is
written, in the kernel's dialect, and computes that too.

Evidence: the references are NumPy's indexing; the simulated core's gathers follow the SDK's descriptions of
run-time indices (2.26.1, `nki.language.load` with a tile of indices) and of `.ap(vector_offset=)` (nki-aps.rst).
"""

import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from kernel_heads import neuronxcc_kernel, nki_kernel
from warm import computed

from accelopt.algorithm.ir import from_json
from accelopt.algorithm.least_work import least_work
from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import default_nest
from accelopt.kernels.nki.nests.starts import starting_nests
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift.lifted_text import traced

NEURONXCC = neuronxcc_kernel("").replace("\n\n", "\nimport neuronxcc.nki.typing as nt\n\n", 1)
NKI = nki_kernel("")
POSITIONS = """def kernel(ids, words, places):
    n, d = ids.shape[0], words.shape[1]
    out = nl.ndarray((n, d), dtype=words.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(128)[:, None], nl.arange(d)[None, :]
    for t in nl.affine_range(n // 128):
        at = nl.load(ids[t * 128 + i_p, 0])
        word = nl.load(words[at[i_p, 0], i_f])
        nl.store(out[t * 128 + i_p, i_f], word + nl.load(places[(t % 2) * 128 + i_p, i_f]))
    return out
"""
PROJECTED = """def kernel(ids, table, w):
    n, d, f = ids.shape[0], table.shape[1], w.shape[1]
    out = nl.ndarray((n, f), dtype=table.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(128)[:, None], nl.arange(d)[None, :]
    weight = nl.load(w)
    for t in nl.affine_range(n // 128):
        at = nl.load(ids[t * 128:(t + 1) * 128, :])
        rows = nl.load(table[at[i_p, 0], i_f])
        nl.store(out[t * 128:(t + 1) * 128, :], nl.matmul(rows, weight))
    return out
"""
PAGED = """def kernel(pages, cache, q):
    blocks, size, d = cache.shape
    n = pages.shape[1]
    out = nl.ndarray((n, size), dtype=q.dtype, buffer=nl.shared_hbm)
    i_p, i_s, i_d = nl.mgrid[0:n, 0:size, 0:d]
    table = nl.load(pages.reshape((n, 1)))
    keys = nl.load(cache[table[nl.arange(n)[:, None, None], 0], i_s, i_d])
    query = nl.load(q.reshape((1, 1, d))).broadcast_to((n, size, d))
    nl.store(out, nl.sum(keys * query, axis=2))
    return out
"""
PAGED_NKI = """def kernel(pages, cache, q):
    blocks, size, d = cache.shape
    n = pages.shape[1]
    out = nl.ndarray((n, size), dtype=q.dtype, buffer=nl.shared_hbm)
    at = nl.ndarray((n, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=at, src=pages.reshape((n, 1)))
    query = nl.ndarray((n, d), dtype=q.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=query, src=q.ap([[0, n], [1, d]]))
    scores = nl.ndarray((n, size), dtype=nl.float32, buffer=nl.sbuf)
    for s in range(size):
        keys = nl.ndarray((n, d), dtype=cache.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=keys, src=cache.ap([[size * d, n], [1, d]], offset=s * d, vector_offset=at))
        nisa.tensor_tensor(dst=keys, data1=keys, data2=query, op=nl.multiply)
        nisa.tensor_reduce(dst=scores[:, s:s + 1], op=nl.add, data=keys, axis=1)
    nisa.dma_copy(dst=out, src=scores)
    return out
"""
ROUTED = """def kernel(order, x, gate):
    n, d = order.shape[0], x.shape[1]
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_d = nl.arange(128)[:, None], nl.arange(d)[None, :]
    for t in nl.affine_range((n + 127) // 128):
        kept = t * 128 + i_p < n
        at = nl.load(order[t * 128 + i_p], mask=kept)
        row = nl.load(x[at[i_p, 0], i_d], mask=kept)
        g = nl.load(gate[at[i_p, 0], nl.arange(1)[None, :]], mask=kept)
        nl.store(out[t * 128 + i_p, i_d], row * g, mask=kept)
    return out
"""
ROUTED_NKI = """def kernel(order, x, gate):
    n, d = order.shape[0], x.shape[1]
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, n, 128):
        rows = min(128, n - start)
        at = nl.ndarray((rows, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=at, src=order.reshape((n, 1))[start:start + rows, :])
        row = nl.ndarray((rows, d), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=x.ap([[d, rows], [1, d]], vector_offset=at))
        g = nl.ndarray((rows, 1), dtype=gate.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=g, src=gate.ap([[1, rows], [1, 1]], vector_offset=at))
        nisa.tensor_scalar(dst=row, data=row, op0=nl.multiply, operand0=g)
        nisa.dma_copy(dst=out[start:start + rows, :], src=row)
    return out
"""
LABELS = """def kernel(logits, labels):
    n, v = logits.shape
    out = nl.ndarray((n, 1), dtype=logits.dtype, buffer=nl.shared_hbm)
    i_p, i_v = nl.arange(128)[:, None], nl.arange(v)[None, :]
    for t in nl.affine_range(n // 128):
        x = nl.load(logits[t * 128 + i_p, i_v])
        largest = nl.max(x, axis=1, keepdims=True)
        total = nl.sum(nl.exp(x - largest), axis=1, keepdims=True)
        label = nl.load(labels[t * 128 + i_p, nl.arange(1)[None, :]])
        chosen = nl.gather_flattened(data=x, indices=label)
        nl.store(out[t * 128 + i_p, nl.arange(1)[None, :]], nl.log(total) + largest - chosen)
    return out
"""
LABELS_NKI = """def kernel(logits, labels):
    n, v = logits.shape
    out = nl.ndarray((n, 1), dtype=logits.dtype, buffer=nl.shared_hbm)
    flat = logits.reshape((n * v, 1))
    for t in range(n // 128):
        x = nl.ndarray((128, v), dtype=logits.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=logits[t * 128:(t + 1) * 128, :])
        largest = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=x, axis=1)
        low = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=low, data=largest, op0=nl.multiply, operand0=-1.0)
        e = nl.ndarray((128, v), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=e, op=nl.exp, data=x, bias=low)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=e, axis=1)
        nisa.activation(dst=total, op=nl.log, data=total)
        label = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=label, src=labels[t * 128:(t + 1) * 128, :])
        place = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.iota(dst=place, pattern=[[0, 1]], offset=t * 128 * v, channel_multiplier=v)
        nisa.tensor_tensor(dst=place, data1=place, data2=label, op=nl.add)
        chosen = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=chosen, src=flat.ap([[1, 128], [1, 1]], vector_offset=place))
        nisa.tensor_tensor(dst=total, data1=total, data2=largest, op=nl.add)
        nisa.tensor_tensor(dst=total, data1=total, data2=chosen, op=nl.subtract)
        nisa.dma_copy(dst=out[t * 128:(t + 1) * 128, :], src=total)
    return out
"""


APPENDED = """def kernel(cache: nt.mutable_tensor, k, lengths):
    b, s, h, d = cache.shape
    rows = cache.reshape((b * s, h * d))
    i_p, i_f = nl.arange(b)[:, None], nl.arange(h * d)[None, :]
    at = nl.add(nl.load(lengths), nisa.iota(i_p * s, dtype=nl.int32), dtype=nl.int32)
    nl.store(rows[at[i_p, 0], i_f], nl.multiply(nl.load(k), 0.5))
    return cache
"""
APPENDED_NKI = """def kernel(cache, k, lengths):
    b, s, h, d = cache.shape
    at = nl.ndarray((b, 1), dtype=nl.int32, buffer=nl.sbuf)
    first = nl.ndarray((b, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=at, src=lengths)
    nisa.iota(dst=first, pattern=[[0, 1]], offset=0, channel_multiplier=s)
    nisa.tensor_tensor(dst=at, data1=at, data2=first, op=nl.add)
    rows = cache.reshape((b * s, h * d))
    for n in range(h):
        x = nl.ndarray((b, d), dtype=k.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=k[:, n * d:(n + 1) * d])
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
        nisa.dma_copy(dst=rows.ap([[h * d, b], [1, d]], offset=n * d, vector_offset=at, indirect_dim=0), src=x)
    return cache
"""
DISPATCHED = """def kernel(x, gate, order):
    n, d = x.shape
    out = nl.ndarray((2 * n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range(2 * n // 128):
        nl.store(out[t * 128:(t + 1) * 128, :], nl.zeros((128, d), dtype=x.dtype))
    i_p, i_f = nl.arange(128)[:, None], nl.arange(d)[None, :]
    for t in nl.sequential_range(n // 128):
        at = nl.load(order[t * 128:(t + 1) * 128, :])
        row = nl.load(x[t * 128:(t + 1) * 128, :]) * nl.load(gate[t * 128:(t + 1) * 128, :])
        nl.store(out[at[i_p, 0], i_f], row)
    return out
"""


class Problem(NamedTuple):
    """A kernel in both dialects (by the default nest, where nothing is said for `nki`), what it is called with (an
    upper bound in the place of data for integers), and what it computes."""

    name: str
    neuronxcc: str
    nki: str | None
    arguments: tuple[tuple[tuple[int, ...], int], ...]
    reference: Callable[..., np.ndarray]
    said: str


def nll(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    largest = logits.max(1, keepdims=True)
    total = np.log(np.exp(logits - largest).sum(1, keepdims=True))
    return total + largest - np.take_along_axis(logits, labels.astype(np.int64), 1)


def put(rows: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    made = rows.copy()
    made[at] = values
    return made


PROBLEMS = [
    Problem("positions", POSITIONS, None,
            (((512, 1), 300), ((300, 96), 0), ((256, 96), 0)),
            lambda ids, w, p: w[ids[:, 0]] + np.tile(p, (2, 1)), "words[ids["),
    Problem("projected", PROJECTED, None,
            (((256, 1), 300), ((300, 128), 0), ((128, 192), 0)),
            lambda ids, t, w: t[ids[:, 0]] @ w, "table[ids["),
    Problem("paged", PAGED, PAGED_NKI, (((1, 32), 40), ((40, 4, 48), 0), ((1, 48), 0)),
            lambda pages, cache, q: (cache[pages[0]] * q[0]).sum(-1), "cache[pages["),
    Problem("routed", ROUTED, ROUTED_NKI, (((200,), 512), ((512, 64), 0), ((512, 1), 0)),
            lambda order, x, g: x[order] * g[order], "x[order["),
    Problem("appended", APPENDED, APPENDED_NKI, (((64, 16, 2, 24), 0), ((64, 48), 0), ((64, 1), 16)),
            lambda cache, k, n: put(cache.reshape(64 * 16, 48), np.arange(64) * 16 + n[:, 0], k / 2)
            .reshape(cache.shape), ", put at "),
    Problem("dispatched", DISPATCHED, None, (((256, 96), 0), ((256, 1), 0), ((256, 1), 300)),
            lambda x, g, n: put(np.zeros((512, 96)), n[:, 0], x * g), ", put at order["),
    Problem("labels", LABELS, LABELS_NKI, (((256, 200), 0), ((256, 1), 200)), nll, "labels["),
]  # fmt: skip
TARGETS = {"neuronxcc": "trn1", "nki": "trn2"}


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.name)
def test_gathers_are_lifted_and_written(problem: Problem, dialect: str) -> None:
    rng = np.random.default_rng(7)
    given = [
        rng.integers(0, below, shape).astype(np.int32)
        if below
        else rng.standard_normal(shape).astype(np.float32)
        for shape, below in problem.arguments
    ]
    exact = problem.reference(*(a if a.dtype == np.int32 else a.astype(np.float64) for a in given))
    text = NEURONXCC + problem.neuronxcc
    if dialect == "nki":
        own = lift(traced(text, given, "trn1"))
        nest = default_nest(own, "trn2")
        written = lower_nest(own, nest, target="trn2", dialect="nki").source
        text = NKI + problem.nki if problem.nki else written
    target = TARGETS[dialect]

    def ran(source: str) -> np.ndarray:
        (found,) = computed(source, given, target)
        return np.asarray(found, np.float64)

    def near(found: np.ndarray) -> bool:
        return bool(np.linalg.norm(found - exact) <= 2e-5 * np.linalg.norm(exact))

    assert near(ran(text))
    algorithm = lift(traced(text, given, target))
    assert problem.said in algorithm_text(algorithm)
    assert from_json(algorithm.to_json()) == algorithm
    names = [array.name for array in algorithm.inputs]
    assert near(evaluate(algorithm, dict(zip(names, given, strict=True)))[0])
    nests = list(starting_nests(algorithm, target))
    for nest in [nests[0], *random.Random(2).sample(nests[1:], min(3, len(nests) - 1))]:
        assert near(ran(lower_nest(algorithm, nest, target=target, dialect=dialect).source)), nest  # type: ignore[arg-type]


def test_of_a_table_the_rows_that_are_read_count() -> None:
    """A row for each number, at most all of the table: that no two numbers are alike is an assumption."""

    def read(words: int) -> int:
        given = [
            np.zeros((512, 1), np.int32),
            *(np.zeros((n, 96), np.float32) for n in (words, 256)),
        ]
        return least_work(lift(traced(NEURONXCC + POSITIONS, given, "trn1"))).read_bytes

    assert read(30000) == 4 * (512 + (512 + 256) * 96)
    assert read(300) == 4 * (512 + (300 + 256) * 96)
