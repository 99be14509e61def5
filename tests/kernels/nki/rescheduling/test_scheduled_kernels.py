"""Kernels that schedules offer: called as the original is, faster by prediction, and right."""

import contextlib
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from kernel_heads import neuronxcc_kernel, neuronxcc_of
from warm import computed

from accelopt.caches import VerdictCache
from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.kernel_function import kernel_function
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.nests.nest import Nest, Stage, default_nest
from accelopt.kernels.nki.predicted_times import Refused
from accelopt.kernels.nki.rescheduling.lifted_kernel import lifted_kernel, signature
from accelopt.kernels.nki.rescheduling.schedule_candidates import (
    ScheduledKernel,
    actions_of,
    offered,
)
from tests.kernels.nki.lift.lifted_text import traced

NAIVE = neuronxcc_kernel('''def kernel(x, eps, gain: nl.ndarray = None):
    """Rows of x over their root mean square, four columns of tiles at a time."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = nl.load(x[i * 128 : (i + 1) * 128, :])
        mean = nl.mean(nl.square(rows), axis=1)
        scale = nl.rsqrt(nl.add(mean, eps))
        for j in nl.affine_range(4):
            part = nl.load(x[i * 128 : (i + 1) * 128, j * 256 : (j + 1) * 256])
            nl.store(out[i * 128 : (i + 1) * 128, j * 256 : (j + 1) * 256], nl.multiply(part, scale))
    return out
''')

RANDOM = neuronxcc_of("x")("""
nl.store(out[0:128, :], nl.add(nl.load(x[0:128, :]), nl.rand((128, 512))))
""")
DOUBLED = neuronxcc_of("x")(
    "y = nl.load(x[0:128, :])\n" + "y = nl.exp(y) + y\n" * 20 + "nl.store(out[0:128, :], y)"
)


def test_an_offer_is_called_as_the_kernel_and_computes_the_same(tmp_path: Path) -> None:
    path = tmp_path / "naive.py"
    path.write_text(NAIVE)
    given = {"x": ParameterFacts((512, 1024), "float32"), "eps": ParameterFacts(())}
    shelf = VerdictCache(tmp_path / "cache")
    found = offered(NAIVE, path, given, shelf=shelf)
    assert found.offers, found.refusal
    offer = found.offers[0]
    assert "def kernel(x, eps, gain: nl.ndarray = None):" in offer.source
    assert signature(kernel_function(NAIVE)) == "x, eps, gain=None"
    assert found.counts["timed"] >= 1
    assert offered(NAIVE, path, given, shelf=shelf) == found
    with contextlib.closing(sqlite3.connect(shelf.path)) as database:
        ((kind, key),) = database.execute("SELECT kind, key FROM results").fetchall()
    for other in ([], {"offers": [[{"stages": [3]}]], "refusal": "", "counts": {}}):
        shelf.put(kind, key, other)
        again = offered(
            NAIVE, path, given, "trn1", shelf, lambda sources, _=0: [1.0] * len(sources)
        )
        assert again.offers, "a row of another schema is searched again"
    account = found.account()
    assert account["priced"] == found.counts["priced"] > account["timed"] >= 1
    assert account["fastest"][0]["predicted_ms"] == offer.predicted_ms

    x = np.random.default_rng(2).standard_normal((512, 1024)).astype(np.float32)
    (got,) = computed(offer.source, [x, 0.5])
    exact = x / np.sqrt(np.mean(np.float64(x) ** 2, axis=1, keepdims=True) + 0.5)
    assert np.abs(got - exact).max() < 1e-5


def test_a_kernel_by_schedule_has_the_name_that_its_author_gave_it(tmp_path: Path) -> None:
    source = NAIVE.replace("def kernel(", "def root_mean_square(")
    path = tmp_path / "naive.py"
    path.write_text(source)
    given = {"x": ParameterFacts((512, 1024), "float32"), "eps": ParameterFacts(())}
    lifted = lifted_kernel(source, path, given)
    assert (
        "def root_mean_square(x, eps, gain=None):"
        in lifted.lowered(default_nest(lifted.algorithm)).source
    )


DIVIDED = neuronxcc_of("scores, temperature")("""
for r in nl.affine_range(2):
    tile = nl.load(scores[r * 128 : (r + 1) * 128, :]) / temperature
    powers = nl.exp(tile - nl.max(tile, axis=1, keepdims=True))
    nl.store(out[r * 128 : (r + 1) * 128, :], powers / nl.sum(powers, axis=1, keepdims=True))
""")


def test_what_is_divided_by_an_argument_is_for_every_number(tmp_path: Path) -> None:
    path = tmp_path / "divided.py"
    path.write_text(DIVIDED)
    given = {"scores": ParameterFacts((256, 512), "float32"), "temperature": ParameterFacts(())}
    lifted = lifted_kernel(DIVIDED, path, given)
    fast = lifted.lowered(default_nest(lifted.algorithm)).source
    x = np.random.default_rng(2).standard_normal((256, 512)).astype(np.float32)
    for number in (2.5, 0.3):
        (got,) = computed(fast, [x, number])
        powers = np.exp(np.float64(x) / number)
        assert np.allclose(got, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("kernel", "why"), [(RANDOM, "random"), (DOUBLED, "at most 50,000 are")])
def test_what_cannot_be_lifted_is_refused_with_the_reason(
    kernel: str, why: str, tmp_path: Path
) -> None:
    (path := tmp_path / "kernel.py").write_text(kernel)
    found = offered(kernel, path, {"x": ParameterFacts((128, 512), "float32")})
    assert not found.offers and why in found.refusal, found.refusal


def test_an_offer_becomes_an_action_that_says_what_it_saves() -> None:
    offer = ScheduledKernel(Nest(stages=()), "Write it anew", "source", 1.5, 1_000_000)
    metrics = {"latency": 3.0, "hbm_read_bytes": 2e9, "hbm_write_bytes": 1e6}
    (action,) = actions_of([offer], metrics)
    assert (action.promise, action.predicted) == (0.5, 1.5)
    assert action.sentence == "Write it anew: 2 GB fewer bytes."
    stages = [Stage(members=("out",), columns=size) for size in (512, 1024)]
    alike = [offer._replace(nest=Nest(stages=(stage,))) for stage in stages]
    held = offer._replace(nest=Nest(stages=(stages[0],), held=("out",)))
    assert [action.sentence for action in actions_of([*alike, held], {})] == [
        "Write it anew.", "Write it anew (columns 1024).", 'Write it anew (held ["out"]).'
    ]  # fmt: skip


def test_lifting_ends_in_time_with_the_line_that_it_was_at() -> None:
    program = traced(NAIVE, [np.zeros((512, 1024), np.float32), 0.5], "trn1")
    with pytest.raises(NotLifted, match="within the -1 s of lifting") as refusal:
        lift(program, seconds=-1.0)
    assert refusal.value.source.line > 0


@pytest.mark.parametrize(
    ("time", "said"),
    [
        (Refused("[err_x] at kernel.py:7: a tile is too long."), "[err_x] at kernel.py:7: a tile is too long."),
        (float("inf"), "the reason is not known"),
    ],
)  # fmt: skip
def test_why_the_core_takes_no_kernel_by_schedule_is_said(
    tmp_path: Path, time: float, said: str
) -> None:
    path = tmp_path / "naive.py"
    path.write_text(NAIVE)
    given = {"x": ParameterFacts((512, 1024), "float32"), "eps": ParameterFacts(())}
    found = offered(NAIVE, path, given, times=lambda sources, most_ms=0.0: [time] * len(sources))
    assert not found.offers and found.refusal.endswith(said)
    assert "the simulated core takes none of the" in found.refusal


WHOLE_SUM = neuronxcc_of("x", shape="(1, 1)")("""
row = nl.sum(nl.load(x), axis=1, keepdims=True)
nl.store(out, nl.sum(nl.transpose(row), axis=1, keepdims=True))
""")


def test_a_sum_of_everything_is_a_sum_of_parts_that_lie_on_partitions(tmp_path: Path) -> None:
    """It has no axis left for rows."""
    path = tmp_path / "whole.py"
    path.write_text(WHOLE_SUM)
    found = offered(WHOLE_SUM, path, {"x": ParameterFacts((128, 512), "float32")})
    nest = found.offers[0].nest
    assert not found.refusal
    assert [part.size for part in nest.stages[0].partition] == [128]


BOTH_WAYS = neuronxcc_kernel("""def kernel(x):
    rows = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    columns = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(rows, nl.sum(tile, axis=1, keepdims=True))
    turned = nisa.nc_transpose(tile)
    nl.store(columns, nl.sum(turned, axis=1, keepdims=True))
    return rows, columns
""")


def test_sums_over_rows_beside_sums_over_columns_are_nests(tmp_path: Path) -> None:
    """As in a backward pass of a norm: neither axis is free in every result, so that no schedule of
    rows has both; what lies on partitions is added up by a product with ones."""
    path = tmp_path / "both.py"
    path.write_text(BOTH_WAYS)
    found = offered(BOTH_WAYS, path, {"x": ParameterFacts((128, 128), "float32")})
    assert "nc_matmul" in found.offers[0].source and not found.refusal
