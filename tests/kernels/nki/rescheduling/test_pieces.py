"""Kernels of which a part does not lift: what lifts is scheduled, the rest stays as its author wrote it.

Evidence: the references are NumPy's; what is untouched is compared line by line.
"""

import re

import numpy as np
import pytest
from kernel_heads import neuronxcc_kernel, neuronxcc_of, nki_kernel
from warm import computed

from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.nests.lowering import lower_part
from accelopt.kernels.nki.nests.nest import default_nest
from accelopt.kernels.nki.rescheduling.liftable_statements import pieces, with_pieces
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift.lifted_text import traced

ROUTE = neuronxcc_kernel("""def kernel(x, w):
    n, d = x.shape
    e = w.shape[1]
    normed = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.hbm)
    logits = nl.ndarray((n, e), dtype=nl.float32, buffer=nl.hbm)
    best = nl.ndarray((n, e), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(n // 128):
        rows = nl.load(x[t * 128:(t + 1) * 128, :])
        ms = nl.mean(nl.square(rows), axis=1, keepdims=True)
        nl.store(normed[t * 128:(t + 1) * 128, :], rows * nl.rsqrt(ms + 1e-6))
    for t in nl.affine_range(n // 128):
        a = nl.load(normed[t * 128:(t + 1) * 128, :])
        nl.store(logits[t * 128:(t + 1) * 128, :], nl.matmul(a, nl.load(w)))
    # All but the eight largest, as they are.
    for t in nl.affine_range(n // 128):
        rows = slice(t * 128, (t + 1) * 128)
        rest = nisa.nc_match_replace8(
            data=nl.load(logits[rows, :]), vals=nisa.max8(src=nl.load(logits[rows, :])), imm=0.0)
        nl.store(best[rows, :], rest)
    return best
""")
ROUTE_NKI = nki_kernel("""def kernel(x, w):
    n, d = x.shape
    e = w.shape[1]
    scaled = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.private_hbm)
    best = nl.ndarray((n, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in range(n // 128):
        rows = nl.ndarray((128, d), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=x[t * 128:(t + 1) * 128, :])
        gain = nl.ndarray((128, d), dtype=w.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=gain, src=w.ap([[0, 128], [e, d]]))
        nisa.tensor_tensor(dst=rows, data1=rows, data2=gain, op=nl.multiply)
        nisa.dma_copy(dst=scaled[t * 128:(t + 1) * 128, :], src=rows)
    for t in range(n // 128):
        found = nl.ndarray((128, d), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=found, src=scaled[t * 128:(t + 1) * 128, :])
        eight = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.max8(dst=eight, src=found)
        # The next eight, as they are.
        nisa.nc_match_replace8(dst=found, data=found, vals=eight, imm=-1e30)
        nisa.max8(dst=eight, src=found)
        nisa.dma_copy(dst=best[t * 128:(t + 1) * 128, :], src=eight)
    return best
""")
IN_LOOP = neuronxcc_kernel("""def kernel(x, w):
    n, d = x.shape
    e = w.shape[1]
    best = nl.ndarray((n, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    weight = nl.load(w)
    for t in nl.affine_range(n // 128):
        rows = nl.load(x[t * 128:(t + 1) * 128, :])
        ms = nl.mean(nl.square(rows), axis=1, keepdims=True)
        normed = rows * nl.rsqrt(ms + 1e-6)
        logits = nl.copy(nl.matmul(normed, weight))
    # The next eight, as they are.
        rest = nisa.nc_match_replace8(data=logits, vals=nisa.max8(src=logits), imm=-1e30)
        eight = nisa.max8(src=rest)
        nl.store(best[t * 128:(t + 1) * 128, :], eight)
    return best
""")
IN_LOOP_NKI = nki_kernel("""def kernel(x, w):
    n, d = x.shape
    e = w.shape[1]
    best = nl.ndarray((n, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in range(n // 128):
        rows = nl.load(x[t * 128:(t + 1) * 128, :])
        gain = nl.ndarray((128, d), dtype=w.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=gain, src=w.ap([[0, 128], [e, d]]))
        nisa.tensor_tensor(dst=rows, data1=rows, data2=gain, op=nl.multiply)
        first = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.max8(dst=first, src=rows)
    # The next eight, as they are.
        rest = nl.ndarray((128, d), dtype=x.dtype, buffer=nl.sbuf)
        nisa.nc_match_replace8(dst=rest, data=rows, vals=first, imm=-1e30)
        eight = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.max8(dst=eight, src=rest)
        nisa.dma_copy(dst=best[t * 128:(t + 1) * 128, :], src=eight)
    return best
""")
BOTH_SIDES = neuronxcc_kernel("""def kernel(x, w):
    n, d = x.shape
    out = nl.ndarray((n, w.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range(n // 128):
        p = nl.exp(nl.load(x[t * 128:(t + 1) * 128, :]))
        p = nl.divide(p, nl.sum(p, axis=1, keepdims=True))
        # what is not among the sixteen largest is dropped
        rest = nisa.nc_match_replace8(data=p, vals=nisa.max8(src=p), imm=-1e30)
        eight = nisa.max8(src=rest)
        kept = nl.multiply(p, nl.greater_equal(p, eight[:, 7:8]))
        nl.store(out[t * 128:(t + 1) * 128, :], nl.matmul(kept, nl.load(w)))
    return out
""")
BOTH_SIDES_NKI = nki_kernel("""def kernel(x, w):
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    for t in range(n // 128):
        rows = nl.ndarray((128, d), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=x[t * 128:(t + 1) * 128, :])
        e = nl.ndarray((128, d), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=e, op=nl.exp, data=rows)
        first = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=first, src=e)
        # what is not among the sixteen largest is dropped
        rest = nl.ndarray((128, d), dtype=nl.float32, buffer=nl.sbuf)
        nisa.nc_match_replace8(dst=rest, data=e, vals=first, imm=-1e30)
        eight = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=eight, src=rest)
        over = nl.ndarray((128, d), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=over, data=e, op0=nl.divide, operand0=eight[:, 7:8])
        nisa.dma_copy(dst=out[t * 128:(t + 1) * 128, :], src=over)
    return out
""")
BEST_ROW = neuronxcc_kernel("""def kernel(x, w):
    n, d = x.shape
    out = nl.ndarray((n, w.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(128)[:, None], nl.arange(w.shape[1])[None, :]
    for t in nl.affine_range(n // 128):
        scores = nl.multiply(nl.load(x[t * 128:(t + 1) * 128, :]), 2.0)
        best = nisa.max8(src=scores)
        where = nisa.nc_find_index8(data=scores, vals=best)
        at = nl.copy(where[:, 0:1], dtype=nl.int32)
        row = nl.load(w[at[i_p, 0], i_f])
        nl.store(out[t * 128:(t + 1) * 128, :], nl.multiply(row, row))
    return out
""")
SHAPES = ((256, 128), (128, 64))


def next_eight(values: np.ndarray) -> np.ndarray:
    """The ninth to the sixteenth largest: of what is left when the eight largest are replaced."""
    return -np.sort(-values, axis=1)[:, 8:16]


def without_eight(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    found = logits_of(x, w)
    return np.where(found > next_eight(found)[:, :1], 0.0, found)


def logits_of(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) @ w


def routed(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return next_eight(logits_of(x, w))


def above_sixteenth(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    e = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    return e * (e >= next_eight(e)[:, 7:]) @ w


@pytest.mark.parametrize(
    ("text", "target", "reference", "opaque"),
    [
        (ROUTE, "trn1", without_eight, ("logits",)),
        (ROUTE_NKI, "trn2", lambda x, w: next_eight(x * w[:, 0]), ("scaled",)),
        (BOTH_SIDES, "trn1", above_sixteenth, ("p_of_all",)),
        (
            BOTH_SIDES_NKI,
            "trn2",
            lambda x, w: np.exp(x) / next_eight(np.exp(x))[:, 7:],
            ("e_of_all", "first_of_all"),
        ),
        (IN_LOOP, "trn1", routed, ("logits_of_all",)),
        (
            IN_LOOP_NKI,
            "trn2",
            lambda x, w: next_eight(x * w[:, 0]),
            ("rows_of_all", "first_of_all"),
        ),
    ],
    ids=[
        "neuronxcc",
        "nki",
        "sides-neuronxcc",
        "sides-nki",
        "loop-neuronxcc",
        "loop-nki",
    ],
)
def test_what_lifts_is_scheduled_around_what_does_not(text, target, reference, opaque):
    rng = np.random.default_rng(1)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]
    program = traced(text, given, target)
    with pytest.raises(NotLifted, match=r"sorts|searches"):
        lift(program)
    found = pieces(program, text)
    (kept,) = found.opaque
    assert kept.inputs == opaque
    assert kept.reason.startswith("it s") and "nisa." in text.splitlines()[kept.source.line - 1]
    dialect = "nki" if target == "trn2" else "neuronxcc"
    taken = set(re.findall(r"[a-z]\w*", text))
    taken |= {array.name for p in found.lifted for array in p.algorithm.outputs}
    lines = [
        (p, lower_part(p.algorithm, default_nest(p.algorithm, target), taken, target, dialect)[0])
        for p in found.lifted
    ]
    made = with_pieces(text, found.function, lines, ["assert len(x.shape) == 2"], dialect)
    assert text[text.index("#") : text.index("\n", text.index("nc_", text.index("#")))] in made
    assert made.startswith(text[: text.index("    n, d = ")])
    (got,) = computed(made, given, target)
    np.testing.assert_allclose(got, reference(*given), rtol=1e-4, atol=1e-4)


ONE_LOOP = neuronxcc_of("x, w", shape="(x.shape[0], 8)", dtype="nl.uint32")("""
tile = nl.load(x)
nl.store(out, nisa.nc_find_index8(data=tile, vals=nisa.max8(src=tile)))
""")


def test_the_row_that_a_search_finds_lifts() -> None:
    algorithm = lift(traced(BEST_ROW, [np.zeros(shape, np.float32) for shape in SHAPES], "trn1"))
    x, w = (np.random.default_rng(2).standard_normal(shape) for shape in SHAPES)
    (found,) = evaluate(algorithm, {"x": x, "w": w})
    np.testing.assert_allclose(found, w[x.argmax(1)] ** 2)


def test_a_kernel_without_closed_parts_is_refused() -> None:
    given = [np.zeros((128, 64), np.float32)] * 2
    with pytest.raises(NotLifted, match="no part of it stands alone and lifts"):
        pieces(traced(ONE_LOOP, given, "trn1"), ONE_LOOP)
