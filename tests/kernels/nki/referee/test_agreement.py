"""How outputs agree, as a reference's `compare` says: ties, sets, bounds; and what no cheat gains."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from kernel_heads import neuronxcc_kernel

from accelopt.errors import ConfigError
from accelopt.evaluation import Status
from accelopt.kernels.nki.referee.agreement import agreement_of
from accelopt.kernels.nki.referee.comparison import Gate
from accelopt.kernels.nki.referee.reference import Reference, load_module
from accelopt.kernels.nki.referee.trials import HIDDEN, PUBLIC, STRESS, TrialStore
from accelopt.report.rule_check import check, check_text

TOP = """import numpy as np

def get_inputs():
    return [np.random.randn(128, 64).astype(np.float32)]

def forward(x):
    indices = np.argsort(-x, axis=-1, kind="stable")[:, :8]
    return np.take_along_axis(x, indices, -1), indices.astype(np.uint32)
"""
ROUTER = """import numpy as np

def get_inputs():
    draw = np.random.randn
    return [draw(64, 32).astype(np.float32), draw(32, 16).astype(np.float32)]

def scores(x, w):
    return x @ w

def forward(x, w):
    return np.argmax(scores(x, w), axis=-1).astype(np.uint32)

compare = {0: {"indices_into": scores}}
"""
REPEATS = '\ncompare = {1: {"indices_into": 0, "distinct": False}}\n'
TIES = '\ncompare = {1: {"indices_into": 0}}\n'
FREE = '\ncompare = {0: {"order": "any"}, 1: {"indices_into": 0, "order": "any"}}\n'
SET = '\ncompare = {0: {"order": "any"}, 1: {"order": "any"}}\n'


def last_of_equals(x):
    """A right top-k that prefers other elements among equal ones than the reference does."""
    backwards = np.argsort(-x[:, ::-1], axis=-1, kind="stable")[:, :8]
    indices = x.shape[-1] - 1 - backwards
    return np.take_along_axis(x, indices, -1), indices.astype(np.uint32)


def ascending(x):
    values, indices = last_of_equals(x)
    return values[:, ::-1].copy(), indices[:, ::-1].copy()


def one_eight_times(x):
    indices = np.repeat(np.argmax(x, axis=-1)[:, None], 8, axis=-1).astype(np.uint32)
    return last_of_equals(x)[0], indices


def unpaired(x):
    """The right values, and the right indices in another order: no index belongs to its value."""
    values, indices = last_of_equals(x)
    return values, np.roll(indices, 1, axis=-1)


def judged(text: str, kernel, folder: Path, names=(PUBLIC[0], HIDDEN, STRESS)):
    (folder / "reference.py").write_text(text)
    reference = Reference(folder / "reference.py")
    judge, store = Gate(agreement=reference.agreement), TrialStore(folder / "trials")
    for name in names:
        trial = store.get(reference, name)
        raw = kernel(*trial.inputs)
        raw = raw if isinstance(raw, tuple) else (raw,)
        verdict = judge.judge(trial, raw, reference.kernel_outputs(raw, trial.expected))
        if verdict.message:
            return verdict
    return verdict


@pytest.mark.parametrize(
    ("said", "kernel"), [(TIES, last_of_equals), (FREE, last_of_equals), (FREE, ascending)]
)
def test_what_the_reference_allows_is_correct(said, kernel, tmp_path):
    verdict = judged(TOP + said, kernel, tmp_path)
    assert verdict.status is Status.CORRECT, verdict.message


@pytest.mark.parametrize(
    ("said", "kernel", "message"),
    [
        (REPEATS, one_eight_times, "error per row|relative L2"),
        (TIES, one_eight_times, "is there twice"),
        (FREE, one_eight_times, "is there twice"),
        (TIES, unpaired, "error per row|relative L2"),
        (SET, unpaired, "error per row|relative L2"),
        (TIES, ascending, "relative L2"),
        (FREE, lambda x: (last_of_equals(x)[0], last_of_equals(x)[1] + 64), "from 0 to 63"),
        (TIES, lambda x: (last_of_equals(x)[0], last_of_equals(x)[1].astype("f4")), "dtype"),
    ],
)
def test_what_it_does_not_allow_is_wrong(said, kernel, message, tmp_path):
    verdict = judged(TOP + said, kernel, tmp_path)
    assert verdict.status is not Status.CORRECT
    assert re.search(message, verdict.message), verdict.message


def test_a_set_of_whole_numbers_has_no_order(tmp_path):
    found = judged(TOP + SET, ascending_exact, tmp_path, (PUBLIC[0], HIDDEN))
    assert found.status is Status.CORRECT, found.message


def ascending_exact(x):
    indices = np.argsort(-x, axis=-1, kind="stable")[:, 7::-1].astype(np.uint32)
    return np.take_along_axis(x, indices, -1), indices


def test_indices_of_what_a_function_makes(tmp_path):
    def honest(x, w):
        near = (x.astype(np.float64) @ w).astype(np.float32)
        return near.shape[1] - 1 - np.argmax(near[:, ::-1], axis=-1).astype(np.uint32)

    assert judged(ROUTER, honest, tmp_path).status is Status.CORRECT
    second = judged(ROUTER, lambda x, w: np.argsort(-(x @ w))[:, 1].astype(np.uint32), tmp_path)
    assert second.status is Status.WRONG_NUMBERS


def test_an_undeclared_tie_is_told_in_plain_words(tmp_path):
    text = TOP.replace("np.random.randn(128, 64)", "np.round(np.random.randn(128, 64), 1)")
    verdict = judged(text, last_of_equals, tmp_path)
    assert verdict.status is Status.WRONG_NUMBERS
    assert (
        "output 1, seed 0: " in verdict.message and " scattered, the first at (" in verdict.message
    )
    assert "a tie: input 0 is " in verdict.message
    assert 'compare = {1: {"indices_into": 0}}' in verdict.message


def test_a_bound_of_its_own_holds_on_hidden_inputs_too(tmp_path):
    text = TOP[: TOP.index("    indices =")] + "    return np.exp(x), x + 1\n\n"

    def rough(x):
        return np.exp(x) * np.float32(1 + 4e-4), x + 1

    assert judged(text, rough, tmp_path).status is Status.WRONG_NUMBERS
    own = text + "\ncompare = {0: {'rel_tol': 1e-3}}\n"
    assert judged(own, rough, tmp_path).status is Status.CORRECT
    other = text + "\ncompare = {1: {'rel_tol': 1e-3}}\n"
    assert judged(other, rough, tmp_path).status is Status.WRONG_NUMBERS
    gone = judged(own, lambda x: (np.where(x < 0, np.exp(x), 0), x + 1), tmp_path)
    assert gone.status is Status.WRONG_NUMBERS


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ([1], "compare is list, not a dict"),
        ({"1": {}}, "no output's number"),
        ({0: {"reltol": 1}}, r"compare\[0\]: reltol"),
        ({0: {"rel_tol": 2}}, r"compare\[0\]: rel_tol"),
        ({0: {"order": "none"}}, r"compare\[0\]: order"),
    ],
)
def test_what_compare_cannot_say(said, sentence):
    with pytest.raises(ConfigError, match=sentence):
        agreement_of(said)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({2: {"order": "any"}}, "compare speaks of output 2; there are 2"),
        ({1: {"indices_into": 7}}, "names input 7"),
        ({0: {"indices_into": 0}}, "the indices of input 0 go from 0 to 63"),
        ({1: {"indices_into": 0, "axis": 5}}, "has no axis 5"),
        ({1: {"indices_into": 0, "axis": 0}}, "cannot name elements"),
    ],
)
def test_a_compare_that_does_not_fit_the_reference_is_its_fault(said, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        judged(f"{TOP}\ncompare = {said!r}\n", last_of_equals, tmp_path)


KERNEL = neuronxcc_kernel("""def kernel(x):
    values = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    indices = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    top = nisa.max8(src=tile)
    nl.store(values, top)
    nl.store(indices, nisa.nc_find_index8(data=tile, vals=top))
    return values, indices
""")


@pytest.mark.parametrize(("said", "passes"), [(TIES, False), (REPEATS, True)])
def test_a_kernel_is_checked_by_the_same_rule(said, passes, tmp_path):
    """nc_find_index8 gives the first place of a value each time it is asked for it (documentation of
    2.26.1), so that this kernel names one element of a constant row eight times."""
    kernel, reference = tmp_path / "kernel.py", tmp_path / "reference.py"
    kernel.write_text(KERNEL)
    reference.write_text(TOP + said)
    report = check(kernel, reference, cache=tmp_path / "cache")
    assert report.passed is passes, check_text(report)
    assert passes or "is there twice" in check_text(report)


def test_an_edit_of_the_same_second_and_size_is_seen(tmp_path):
    """Python keeps bytecode by second and size: the edited text was judged by the one before."""
    path = tmp_path / "reference.py"
    for value in (1, 2):
        path.write_text(f"VALUE = {value}\n")
        os.utime(path, (1, 1))
        assert value == load_module(path).VALUE
    assert not (tmp_path / "__pycache__").exists()
