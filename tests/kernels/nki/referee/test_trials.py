"""Inputs and reference outputs: made once, shared, bounded, and hidden where they must be."""

import multiprocessing
import textwrap
from pathlib import Path

import numpy as np
import pytest
from written_references import returning, written

from accelopt.errors import ConfigError
from accelopt.evaluation import REL_TOL, Status
from accelopt.kernels.nki.devices import Inexactness, KernelFailure
from accelopt.kernels.nki.real_core_checks import check_accuracy
from accelopt.kernels.nki.referee import trials
from accelopt.kernels.nki.referee.comparison import MAX_BEYOND, Gate
from accelopt.kernels.nki.referee.norms import row_norms
from accelopt.kernels.nki.referee.precision import Precision
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.rows import LEAST_ROWS, MOST_NEIGHBOURS
from accelopt.kernels.nki.referee.stress import Severity, stressed
from accelopt.kernels.nki.referee.tolerance import exact_outputs
from accelopt.kernels.nki.referee.trials import (
    END,
    EVERY,
    FAR,
    HIDDEN,
    ONE_SIDED,
    PUBLIC,
    STRESS,
    TrialName,
    TrialStore,
)

COUNTED = """
import os
from pathlib import Path
import numpy as np

def get_inputs():
    return [np.random.normal(size=(8, 64)).astype(np.float32), 0.5]

def forward(x, factor):
    with open({log!r}, "a") as log:
        log.write(str(x.dtype) + "\\n")
    return x * np.float32(factor)
"""


@pytest.fixture
def reference(tmp_path) -> Path:
    path = tmp_path / "reference.py"
    path.write_text(textwrap.dedent(COUNTED).format(log=str(tmp_path / "calls")))
    return path


def calls(reference: Path) -> list[str]:
    log = reference.parent / "calls"
    return log.read_text().split() if log.exists() else []


def test_inputs_follow_numpy_seeds(reference, tmp_path):
    np.random.seed(7)
    before = np.random.get_state()[1].copy()
    trial = TrialStore(tmp_path / "trials").get(Reference(reference), TrialName("seed", 42))
    assert np.array_equal(np.random.get_state()[1], before)
    np.random.seed(42)
    assert np.array_equal(trial.inputs[0], np.random.normal(size=(8, 64)).astype(np.float32))
    assert trial.inputs[1] == 0.5
    assert np.array_equal(trial.expected[0], trial.inputs[0] * np.float32(0.5))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: next(folder.glob("*.npy")).unlink(),
        lambda folder: _overwrite(next(folder.glob("*.npy")), b"short"),
        lambda folder: _overwrite(folder / "trial.json", b"{"),
        lambda folder: _overwrite(folder / "trial.json", b"[1]"),
        lambda folder: _overwrite(folder / "trial.json", b'{"inputs": [3]}'),
    ],
)
def test_a_damaged_trial_is_made_again(reference, tmp_path, damage):
    """A fault of the machine is no verdict on a kernel."""
    store = TrialStore(tmp_path / "trials")
    first = store.get(Reference(reference), PUBLIC[0])
    expected = first.expected[0].copy()
    (folder,) = [path for path in store.root.iterdir() if (path / "trial.json").is_file()]
    damage(folder)
    assert np.array_equal(store.get(Reference(reference), PUBLIC[0]).expected[0], expected)
    assert len(calls(reference)) == 2
    assert not store.get(Reference(reference), PUBLIC[0]).inputs[0].flags.writeable
    assert len(calls(reference)) == 2


def _overwrite(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)


def test_another_reference_has_other_trials(reference, tmp_path):
    store = TrialStore(tmp_path / "trials")
    store.get(Reference(reference), PUBLIC[0])
    reference.write_text(reference.read_text() + "# changed\n")
    store.get(Reference(reference), PUBLIC[0])
    assert len(calls(reference)) == 2


def _get(path: str, root: str) -> float:
    trial = TrialStore(root).get(Reference(path), PUBLIC[0])
    return float(trial.expected[0].sum())


def test_concurrent_workers_make_a_trial_once(reference, tmp_path):
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        arguments = [(str(reference), str(tmp_path / "trials"))] * 8
        sums = pool.starmap(_get, arguments)
    assert len(set(sums)) == 1
    assert len(calls(reference)) == 1


def test_the_oldest_trials_make_room(reference, tmp_path):
    store = TrialStore(tmp_path / "trials", max_bytes=12_000)
    kept = [store.get(Reference(reference), name) for name in PUBLIC]
    folders = [path for path in (tmp_path / "trials").iterdir() if path.is_dir()]
    assert 1 <= len(folders) < len(PUBLIC)
    # What was mapped before its file went is still there.
    assert all(np.isfinite(trial.expected[0]).all() for trial in kept)


def test_an_unwritable_store_still_works(reference, tmp_path):
    root = tmp_path / "trials"
    store = TrialStore(root)
    store.get(Reference(reference), PUBLIC[0])
    folder = next(path for path in root.iterdir() if path.is_dir())
    (folder / "trial.json").unlink()  # in the way: a rename onto it fails
    trial = store.get(Reference(reference), PUBLIC[0])
    assert np.array_equal(trial.expected[0], trial.inputs[0] * np.float32(0.5))


def test_hidden_inputs_differ_between_stores_and_stay_in_one(reference, tmp_path):
    one, two = TrialStore(tmp_path / "one"), TrialStore(tmp_path / "two")
    found = [store.get(Reference(reference), HIDDEN).inputs[0] for store in (one, one, two)]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    public = [one.get(Reference(reference), name).inputs[0] for name in PUBLIC]
    assert not any(np.array_equal(found[0], seen) for seen in public)
    assert (tmp_path / "one" / "secret").stat().st_mode & 0o077 == 0
    assert "float64" in calls(reference) and one.get(Reference(reference), HIDDEN).exact


def test_stress_inputs_have_every_kind_of_row():
    x = np.random.default_rng(1).normal(size=(400, 32)).astype(np.float32)
    (changed,) = stressed([x], [x.shape], np.random.default_rng(2), Severity(30.0))
    assert changed.dtype == np.float32 and changed.shape == x.shape
    zero = (changed == 0).all(axis=1)
    constant = (changed == changed[:, :1]).all(axis=1) & ~zero
    one_hot = ((changed != 0).sum(axis=1) == 1) & ~zero
    unchanged = (changed == x).all(axis=1)
    largest = np.abs(changed).max(axis=1)
    tiny, large = (largest < 0.01) & ~zero, (largest > 20) & ~one_hot
    for kind in (zero, constant, one_hot, unchanged, tiny, large):
        assert kind.sum() > 20


@pytest.mark.parametrize("shape", [(1, 32), (32,), (1, 1), (1,)])
def test_stress_hides_no_output_by_what_all_rows_share(shape):
    """A gain of shape (1, D) that was zero, or one-hot, let a wrong eps through for every fourth secret."""
    x, gain = np.ones((400, 32), np.float32), np.full(shape, 0.7, np.float32)
    gain[..., 0] = 0.8
    for seed in range(100):
        _, changed = stressed([x, gain], [x.shape], np.random.default_rng(seed), Severity(30.0))
        assert np.count_nonzero(changed) >= gain.size / 2


@pytest.mark.parametrize(
    ("returned", "on_the_way"),
    [
        ("x * 3", False),
        ("(x * 3).astype(N).reshape(-1)", False),
        ("(x * 3).astype(N).astype(np.float32) + 1", True),
        ("np.add((x * 3).astype(N), 1)", True),
    ],
)
def test_a_reference_that_rounds_on_the_way_is_seen(returned, on_the_way, tmp_path):
    reference = returning(tmp_path, returned, "N = ml_dtypes.bfloat16", dtype="N", x=(4, 8))
    assert reference.uses([np.ones((4, 8), np.float32)]).narrow_on_the_way is on_the_way


def test_stress_leaves_what_is_not_a_number_to_change():
    index = np.arange(12).reshape(3, 4)
    changed = stressed([index, 1e-5, np.float32(2)], [], np.random.default_rng(0), Severity(30.0))
    assert changed[0] is index and changed[1:] == [1e-5, np.float32(2)]
    variance = np.abs(np.random.default_rng(0).normal(size=(50, 8))).astype(np.float32)
    assert (stressed([variance], [], np.random.default_rng(0), Severity(30.0))[0] >= 0).all()


def test_a_reference_that_is_undefined_under_stress_has_no_such_trial(tmp_path):
    text = "import numpy as np\ndef get_inputs():\n    return [np.ones((4, 8), np.float32)]\n"
    text += "def forward(x):\n    return np.where(x == 1, x, np.nan).astype(x.dtype)\n"
    assert TrialStore(tmp_path / "trials").get(written(tmp_path, text), STRESS) is None


@pytest.mark.parametrize("forward", ["np.exp(x).sum(0)", "x if np.abs(x).max() < 60 else 1 / 0"])
def test_inputs_get_milder_until_the_reference_is_defined(tmp_path, forward):
    """An exponential of float32 overflows above 88.7 (IEEE 754): one far row is all that is left of a column."""
    reference = returning(tmp_path, forward, x=(128, 64))
    for name in (STRESS, ONE_SIDED):
        trial = TrialStore(tmp_path / "trials").get(reference, name)
        assert trial is not None and trial.exact[0].judged > 0.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("forward = 1", "no function get_inputs"),
        ("def broken(", "cannot be loaded"),
        ("raise KeyError('x')", "KeyError"),
    ],
)
def test_broken_references_say_what_is_wrong(tmp_path, text, said):
    with pytest.raises(ConfigError, match=said):
        written(tmp_path, text)


def test_loading_leaves_the_import_path_alone(reference):
    import sys

    before = list(sys.path)
    Reference(reference)
    assert sys.path == before


IN_PLACE = """
import numpy as np

def get_inputs():
    return [np.random.normal(size=(8, 64)).astype(np.float32)]

def forward(x):
    x -= x.max(axis=1, keepdims=True)
    return x

def transform_to_nki_inputs(inputs):
    inputs[0] *= 2
    return [inputs[0].reshape(4, 128)]
"""


def test_a_reference_that_works_in_place_changes_no_input(tmp_path):
    """Issue 12, point 13: a kernel that copies its input was correct for `x -= x.max()`."""
    reference = written(tmp_path, IN_PLACE)
    for name in (PUBLIC[0], HIDDEN, STRESS):
        trial = TrialStore(tmp_path / "trials").get(reference, name)
        before = trial.inputs[0].copy()
        assert not np.array_equal(trial.inputs[0], trial.expected[0])
        given = reference.kernel_inputs(trial.inputs)
        assert given[0].shape == (4, 128)
        assert np.array_equal(given[0].reshape(8, 64), 2 * before)
        assert np.array_equal(trial.inputs[0], before)


TOTAL = """import numpy as np

def get_inputs():
    return [np.random.{draw}(size=(2048, 1024)).astype(np.float32)]

def forward(x):
    return x.sum(dtype=x.dtype).reshape(1, 1)
"""


@pytest.mark.parametrize(("draw", "stay"), [("normal", 1.0), ("uniform", 0.125)])
def test_each_term_of_a_sum_of_millions_is_more_than_its_tolerance(tmp_path, draw, stay):
    task = tmp_path / "total.py"
    task.write_text(TOTAL.format(draw=draw))
    store = TrialStore(tmp_path / "trials")
    for name, share in ((EVERY, stay), (END, 0.0039)):
        trial = store.get(Reference(task), name)
        terms = np.abs(trial.inputs[0][trial.inputs[0] != 0])
        assert len(terms) / trial.inputs[0].size == pytest.approx(share, rel=0.02)
        assert terms.min() > 1.5 * trial.exact[0].allowed.max()
        assert trial.expected[0] == trial.inputs[0].sum(dtype=np.float64)
    assert np.count_nonzero(trial.inputs[0].reshape(-1)[[0, -1]]) == 2


FAR_SOFTMAX = """
import numpy as np

def get_inputs():
    rows = np.random.uniform(0, 80, size=(1024, 64)).astype(np.float32)
    return [rows, -np.abs(np.random.normal(scale=12, size=(64, 1024))).astype(np.float32)]

def forward(rows, columns):
    scores = rows @ columns
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
"""


def test_what_is_left_beside_the_maximum_of_a_softmax_is_as_inexact_as_its_like(tmp_path):
    reference = written(tmp_path, FAR_SOFTMAX)
    rows, columns = reference.inputs(32)
    (exact,) = exact_outputs(reference, [rows, columns], reference.forward([rows, columns]))
    scores = sum(rows[:, k : k + 16] @ columns[k : k + 16] for k in range(0, 64, 16))
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    honest = powers / powers.sum(axis=1, keepdims=True)
    assert (np.abs(honest - exact.values) <= MAX_BEYOND * exact.allowed).all()
    few = (exact.values > 1e-30) & (exact.values < 1e-8)
    assert (9 * exact.values > MAX_BEYOND * exact.allowed)[few].mean() > 0.9


def test_no_element_is_held_to_a_step_that_rounds_well_by_luck(tmp_path):
    """The naive GELU MLP, refused with some secrets: a hyperbolic tangent near -1 rounds to steps of
    2**-24, whatever its argument, so where the exact one lay next to a step every sample was as near,
    and another honest tangent 473 times over what they allowed (64 are). Neighbours had vanished."""
    near = np.linspace(-7, -6, 200_000).astype(np.float32)
    steps = np.tanh(near.astype(np.float64)) * 2.0**24
    lucky = near[np.argsort(np.abs(steps - np.round(steps)))[:4]]
    x = np.full((4, 1024), -40, np.float32)
    x[:, 524] = lucky
    reference = returning(tmp_path, "1 + np.tanh(x[:, 24:])", x=(4, 1024))
    (exact,) = exact_outputs(reference, [x], reference.forward([x]))
    tangent = np.tanh(x[:, 24:].astype(np.float64)).astype(np.float32)
    for other in (-np.inf, np.inf):
        honest = 1 + np.nextafter(tangent, np.float32(other), dtype=np.float32)
        ratio = np.abs(honest - exact.values)[:, 500] / exact.allowed[:, 500]
        assert ratio.max() < 1
    missing = exact.values[:, 500] / exact.allowed[:, 500]
    assert missing.min() > 1


def test_a_damaged_trial_condemns_nobody(tmp_path, reference):
    """One flipped bit of a kept output, and one of its description."""
    store = TrialStore(tmp_path / "trials")
    problem = Reference(reference)
    trial = store.get(problem, PUBLIC[0])
    assert not store.discard_damaged(problem)
    (folder,) = (tmp_path / "trials").glob(f"{problem.key}-*")
    for name in ("2.npy", "trial.json"):
        file = folder / name
        bits = bytearray(file.read_bytes())
        bits[-3] ^= 1
        _overwrite(file, bytes(bits))
        assert name == "trial.json" or store.discard_damaged(problem)
        assert np.array_equal(store.get(problem, PUBLIC[0]).expected[0], trial.expected[0])


def test_integers_are_varied_by_their_use(tmp_path):
    """An index stays in its table, a length within what it is compared with (and many reach its end), a number in
    its format, a size what it is, and what a label says that is ignored; also where results are written into an
    array that was made before."""
    text = """
import numpy as np
def get_inputs():
    draw = np.random.randint
    return [draw(0, 9, (64, 1)), np.full((64, 1), 32), draw(0, 5, 64), np.sort(draw(0, 40, 9)),
            draw(-1, 9, 64), np.where(draw(0, 2, 64), draw(2, 9, 64), -100), np.full((64, 1), 8),
            draw(300, 399, 64), np.ones((400, 1), np.float32), 10, 2,
            np.sort(draw(0, 400, (1, 9))), np.argsort(np.random.random((64, 8)))[:, :3]]
def forward(count, tokens, rows, offsets, numbers, labels, zero, asked, given, step, times, cuts, experts):
    table = np.arange(40 * 3).reshape(40, 3)
    there = np.zeros((64, 32), int)
    there[np.arange(32) < tokens] = 1
    return (there * count, table.take(rows, 0), table[offsets], (numbers >> 1) ^ 5,
            np.where(labels == -100, 0, labels), np.repeat(zero, times, 1), given[asked] * 0.9**step,
            given[cuts], experts[:, :, None] == np.arange(8))
"""
    trial = TrialStore(tmp_path / "trials").get(written(tmp_path, text), STRESS)
    _, lengths, rows, offsets, numbers, labels, zero, asked, _, step, times, cuts, experts = (
        trial.inputs
    )
    assert (np.diff(cuts) >= 0).all() and np.diff(np.sort(experts)).all()
    assert (lengths == 32).mean() > 1 / 8 and lengths[0] == 32 and (step > 10, times) == (True, 2)
    assert zero.max() > 8 and {0, 399} <= {*asked}
    assert 1 <= lengths.min() < lengths.max() <= 32
    assert rows.max() < 40 and offsets.max() < 40 and (np.diff(offsets) >= 0).all()
    assert numbers.max() > 1 << 20 and numbers.min() < -1 << 20 and (numbers[::4] < 0).mean() > 0.8
    alike = np.ptp(numbers.reshape(8, 8), axis=1) == 0  # a part of them
    assert alike.sum() == 1 and not alike[[0, -1]].any()
    assert (labels[labels < 0] == -100).all() and (labels < 0).any() and labels.max() > 1 << 20


@pytest.mark.parametrize(("least", "domain"), ((1, ""), (0, ""), (0, "0, 48"), (1, "1, 48")))
def test_few_lengths_and_labels_reach_their_ends(tmp_path, least, domain):
    """Though lengths are all different by chance; none is one where the reference counts none as one."""
    legal = f"def domain(x, n, y):\n    return [x, np.clip(n, {domain}), y]" if domain else ""
    divisor = "np.maximum(n, 1)" if least == 0 else "n"
    text = f"""
import numpy as np
def get_inputs():
    y = np.where(np.random.random((64, 1)) < 0.3, -100, np.random.randint(0, 320, (64, 1)))
    return [np.random.normal(size=(64, 320)).astype(np.float32), np.array([[17], [9], [30], [5]]), y]
{legal}
def forward(x, n, y):
    kept = y != -100
    picked = np.where(kept, np.take_along_axis(x, np.where(kept, y, 0), axis=1), 0)
    return np.where(np.arange(48) < n, x[:4, :48], 0).sum(1, keepdims=True) / {divisor}, picked
"""
    problem = written(tmp_path, text)
    for name in (STRESS, ONE_SIDED):
        _, lengths, labels = TrialStore(tmp_path / "trials").get(problem, name).inputs
        assert (lengths.min(), lengths.max()) == (least, 48)
        assert {-100, 0, 319} <= {*labels.ravel()} and labels[labels >= 0].size >= 2


@pytest.mark.parametrize(
    ("forward", "asked"),
    [
        ("(g - g.mean(2, keepdims=True)) / np.sqrt(g.var(2, keepdims=True) + 1e-5)", True),
        ("g.var((0, 2))", True),
        ("(x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5)", True),
        ("np.exp(g - g.max(2, keepdims=True)) / np.exp(g - g.max(2, keepdims=True)).sum(2, keepdims=True)", False),
        ("x * 2 + 1", False),
    ],
)  # fmt: skip
def test_what_is_less_a_mean_of_several_vectors_is_tried_far_from_zero(tmp_path, forward, asked):
    problem = returning(tmp_path, forward, "g = x.reshape(2, 8, -1)", x=(2, 32, 64))
    trial = TrialStore(tmp_path / "trials").get(problem, FAR)
    assert (trial is not None) == asked
    if trial is not None:
        (x,) = trial.inputs
        assert np.abs(x.mean()) > 50 * x.std()


def test_the_least_numbers_of_a_format_meet(tmp_path):
    """The one product of two fractions with fifteen bits that does not fit into them."""
    text = """
import numpy as np
def get_inputs():
    return [np.random.randint(-32768, 32768, (128, 256)).astype(np.int16) for _ in range(2)]
def forward(x, y):
    return np.minimum(x.astype(np.int64) * y >> 15, 32767).astype(np.int16)
"""
    x, y = TrialStore(tmp_path / "trials").get(written(tmp_path, text), STRESS).inputs
    assert ((x == -32768) & (y == -32768)).any() and ((x == 32767) & (y == 32767)).any()


@pytest.mark.parametrize(
    "text",
    [
        "def domain(x):\n    return [np.clip(x, 0, 1)]\ndef forward(x):\n    return np.arcsin(x)\n",
        "def forward(x):\n    return np.cumprod(x, axis=1)\n",
    ],
)
def test_what_a_domain_says_is_kept_to_and_a_decay_is_one(tmp_path, text):
    given = "import numpy as np\ndef get_inputs():\n"
    given += "    return [np.random.uniform(0, 1, (64, 128)).astype(np.float32)]\n"
    for name in (STRESS, HIDDEN):
        (x,) = TrialStore(tmp_path / "trials").get(written(tmp_path, given + text), name).inputs
        assert x.min() >= 0 and x.max() <= 1


def test_some_rows_stand_for_all_of_a_large_problem(tmp_path):
    """A row's softmax depends on no other row: half of a wrong tile of 128 is seen, and where it is; and a
    few wrong rows, for they are far from the reference's."""
    reference = written(tmp_path, FAR_SOFTMAX.replace("(1024, 64)", "(4096, 64)"))
    store = TrialStore(tmp_path / "trials")
    trial = store.get(reference, STRESS)
    places = trial.rows.places
    assert LEAST_ROWS <= len(places) <= 4096 // 4 and {0, 4095} <= {*places}
    assert np.diff(places).max() <= 2 * MOST_NEIGHBOURS
    assert trial.inputs[0].shape == (4096, 64) and trial.exact[0].values.shape[0] == len(places)
    assert not np.array_equal(
        places, TrialStore(tmp_path / "other").get(reference, STRESS).rows.places
    )
    output = reference.forward(trial.inputs)[0]
    assert Gate().judge(trial, [output], [output]).status is Status.CORRECT
    output[2112:2176] = 7
    said = Gate().judge(trial, [output], [output]).message
    assert "rows)" in said and "[21" in said, said

    output = reference.forward(trial.inputs)[0]
    assert store.of_other_rows(reference, trial, [output], Precision()) is None
    rows = sorted({*range(4096)} - {*places})[:16]  # none of those that are always judged
    output[rows, :4] += 0.25
    assert Gate().judge(trial, [output], [output]).status is Status.CORRECT
    others = store.of_other_rows(reference, trial, [output], Precision())
    assert [*others.rows.places] == rows and not others.whole
    assert "(16 of 4096 rows)" in Gate().judge(others, [output], [output]).message
    assert (
        others.inputs is trial.inputs and len([*store.root.glob(f"{reference.key}-*-rows*")]) == 1
    )  # kept for the next
    public = store.get(reference, PUBLIC[0])
    output = reference.forward(public.inputs)[0]
    output[rows, :4] += 0.25
    others = store.of_other_rows(reference, public, [output], Precision())
    assert [*others.rows.places] == rows
    assert store.of_other_rows(reference, others, [output[rows]], Precision()) is None


def test_very_many_outputs_are_made_again(tmp_path, monkeypatch):
    """In blocks, with the errors of all rows and those that are far, as where the outputs are kept."""
    reference = returning(tmp_path, "np.matmul(a, b)", a=(2, 2048, 64), b=(2, 64, 48))
    kept = TrialStore(tmp_path / "kept").get(reference, PUBLIC[0])
    for name, value in (("trials.MOST_KEPT", 0), ("trials.MADE", 4096), ("rows.MADE_AGAIN", 16384)):
        monkeypatch.setattr(f"accelopt.kernels.nki.referee.{name}", value)
    store = TrialStore(tmp_path / "trials")
    _, trial = (store.get(reference, PUBLIC[0]) for _ in range(2))
    assert trial.remade and not any(trial.expected[0].strides) and not kept.remade
    drawn = store.get(reference, STRESS).rows.places  # which are judged anyway
    one, other = np.setdiff1d(np.arange(2048), drawn)[[9, 700]]
    for wrong in (np.s_[1, other, :2], np.s_[:, one]):
        found = kept.expected[0].copy()
        found[wrong] *= np.float32(1.001)
        beside = trial.beside(reference, [found])
        assert np.allclose(beside.errors[0], row_norms(found, kept.expected[0]), atol=1e-4)
        others = store.of_other_rows(reference, beside, [found], Precision())
        assert {*others.rows.places} in ({one}, {other})
        several = kept, trial.in_full(reference), beside
        full, again, short = (Gate().judge(one, [found], [found]) for one in several)
        assert full == again and full.status == short.status
    assert trial.beside(reference, [found[0]]) is trial  # of other shapes nothing is known


def test_projections_stand_for_many_outputs(tmp_path, reference, monkeypatch):
    """Whatever is wrong by a bit more than it may be is seen, of an output or of a row; and of what a real core adds."""
    monkeypatch.setattr(trials, "MOST_IN_FULL", 0)
    problem, store = Reference(reference), TrialStore(tmp_path / "trials")
    _, trial = (store.get(problem, PUBLIC[1]) for _ in range(2))
    assert not store.get(problem, PUBLIC[0]).projections and not any(trial.expected[0].strides)
    (output,) = problem.forward(trial.inputs)
    near = output * np.float32(1 + 1e-7)
    verdict = Gate().judge(trial, [near], [near])
    assert verdict.status is Status.CORRECT
    check_accuracy([Inexactness(REL_TOL * 0.9, "rsqrt")], verdict.checks, "trn2")
    with pytest.raises(KernelFailure):
        check_accuracy([Inexactness(REL_TOL * 1.1, "rsqrt")], verdict.checks, "trn2")
    for wrong in (np.s_[3, 5], np.s_[7:, 62:], np.s_[:, 9], np.s_[:]):
        error = np.zeros(output.shape)
        error[wrong] = 1
        error[7, 62] *= -1
        rows = np.linalg.norm(error, axis=1) / np.linalg.norm(output, axis=1)
        whole = np.linalg.norm(error) / np.linalg.norm(output)
        for least in (2e-5 / whole, 2e-4 / rows.max()):
            found = (output + error * least * 1.05).astype(np.float32)
            assert Gate().judge(trial, [found], [found]).status is Status.WRONG_NUMBERS
