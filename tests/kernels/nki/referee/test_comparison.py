"""Single checks of the referee: what each catches, what it says, and what the old gate let through."""

import numpy as np
import pytest

from accelopt import eval_numpy
from accelopt.evaluation import Scrutiny, Status
from accelopt.kernels.nki.referee.comparison import Gate, expected_dtype, relative_l2
from accelopt.kernels.nki.referee.norms import l2, l2_difference, row_norms
from accelopt.kernels.nki.referee.precision import Precision
from accelopt.kernels.nki.referee.tolerance import Exact
from accelopt.kernels.nki.referee.trials import HIDDEN, PUBLIC, STRESS, Trial, Update

GENERATOR = np.random.default_rng(3)
X = GENERATOR.normal(size=(64, 96)).astype(np.float32)


def trial(*expected, inputs=(X,), updates=None) -> Trial:
    return Trial(
        name=PUBLIC[0],
        inputs=tuple(inputs),
        expected=expected,
        sizes=tuple(row_norms(output) for output in expected),
        exact=None,
        updates=tuple(updates or [None] * len(expected)),
    )


def verdict(outputs, *expected, scrutiny=Scrutiny.FULL, transformed=None, **options):
    judge = Gate(scrutiny=scrutiny)
    return judge.judge(trial(*expected, **options), outputs, transformed or list(outputs))


@pytest.mark.parametrize(
    ("outputs", "status"),
    [
        ((X, X), Status.WRONG_SHAPE),
        ((), Status.WRONG_SHAPE),
        ((X[:-1],), Status.WRONG_SHAPE),
        ((X.astype(np.float64),), Status.WRONG_DTYPE),
        ((X.astype(np.float16),), Status.WRONG_DTYPE),
        ((X + np.float32(1e-4),), Status.WRONG_NUMBERS),
        ((X * np.float32(np.nan),), Status.WRONG_NUMBERS),
    ],
)
def test_each_fault_has_its_status(outputs, status):
    found = verdict(outputs, X)
    assert found.status is status
    assert not found.checks[-1].passed and "seed 0" in found.message


def test_one_wrong_row_is_found_where_it_is():
    big = np.full((5000, 16), 100, np.float32)
    wrong = big.copy()
    wrong[1234] *= 1.001
    assert relative_l2(wrong, big) < 2e-5
    found = verdict((wrong,), big)
    assert found.status is Status.WRONG_NUMBERS and "worst row 1234" in found.message
    assert verdict((wrong,), big, scrutiny=Scrutiny.PUBLISHED).status is Status.CORRECT
    wrong[1234] = 100.001  # 20 times what is allowed: few elements may be, but no row is throughout
    zero, allowed = np.zeros((), np.float32), np.full_like(big, 5e-5)
    exact = (Exact(big, allowed, big > 0, zero, zero),)
    found = Gate().judge(trial(big)._replace(exact=exact, name=STRESS), (wrong,), [wrong])
    assert "row 1234" in found.message and "fraction of a row" in found.message
    wrong[1234, 8:] = big[1234, 8:]
    found = Gate().judge(trial(big)._replace(exact=exact, name=STRESS), (wrong,), [wrong])
    assert found.status is Status.CORRECT


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_single_non_finite_element_is_found_where_it_is(bad):
    wrong = X.copy()
    wrong[7, 5] = bad
    found = verdict((wrong,), X)
    assert found.status is Status.WRONG_NUMBERS and "(7, 5)" in found.message


def test_what_is_undefined_may_spread_in_its_line():
    """A kernel that adds up products with zeros and ones has NaN beside NaN: no other line, and no wrong number."""
    exact, zero = X.copy(), np.zeros((), np.float32)
    exact[3, 5] = np.nan
    allowed = np.where(np.isnan(exact), np.inf, np.float32(1e-5))
    judged = trial(X)._replace(name=STRESS, exact=(Exact(exact, allowed, exact > 0, zero, zero),))
    gate = Gate(usual=(1.0,))
    for places, value, status in (
        ((3,), np.nan, Status.CORRECT),
        ((3, 6), 9, Status.WRONG_NUMBERS),
        ((4, 5), np.nan, Status.WRONG_NUMBERS),
    ):
        found = X.copy()
        found[places] = value
        assert gate.judge(judged, (found,), [found]).status is status


def test_non_finite_references_are_matched():
    odd = X.copy()
    odd[0, 0], odd[1, 1], odd[2, 2] = np.nan, np.inf, -np.inf
    assert verdict((odd.copy(),), odd).status is Status.CORRECT
    other = odd.copy()
    other[1, 1] = -np.inf
    assert verdict((other,), odd).status is Status.WRONG_NUMBERS
    assert verdict((X,), odd).status is Status.WRONG_NUMBERS
    wrong = odd.copy()
    wrong[5] += 1
    assert verdict((wrong,), odd).status is Status.WRONG_NUMBERS


def test_an_all_zero_reference_can_be_met():
    zero = np.zeros((4, 8), np.float32)
    assert verdict((zero.copy(),), zero).status is Status.CORRECT
    assert verdict((zero + np.float32(1e-20),), zero).status is Status.WRONG_NUMBERS


def test_an_update_is_judged_as_an_update():
    step = (1e-3 * GENERATOR.normal(size=X.shape)).astype(np.float32)
    after = X - step
    lazy = X - step * np.float32(0.99)
    assert relative_l2(lazy, after) < 2e-5
    assert (
        verdict((lazy,), after, updates=[Update(0, 0.0)]).checks[-1].name == "error of the update"
    )
    honest = (X.astype(np.float64) - step).astype(np.float32)
    assert verdict((honest,), after, updates=[Update(0, 0.0)]).status is Status.CORRECT
    for double, status in ((after, Status.CORRECT), (lazy, Status.WRONG_NUMBERS)):
        judge = Gate(in_double=lambda double=double: [double])
        found = judge.judge(trial(after, updates=[Update(0, 0.0)]), (lazy,), [lazy])
        assert found.status is status


@pytest.mark.parametrize("shape", [(96, 64), (48, 128), (6144,), (2, 32, 96)])
def test_the_shape_that_a_kernel_returns_is_a_matter_of_the_output_transform(shape):
    """The same elements in the same order are right however they are grouped; in another order the
    numbers tell (assumption: no problem's outputs are all alike)."""
    assert verdict((X.reshape(shape),), X, transformed=[X]).status is Status.CORRECT
    turned = np.ascontiguousarray(X.T).reshape(X.shape)
    found = verdict((turned.reshape(shape),), X, transformed=[turned])
    assert found.status is Status.WRONG_NUMBERS


def test_a_nan_of_the_reference_is_the_references():
    """Nobody can say what is right where the reference is undefined, on which inputs is said; what else
    is wrong with a kernel counts first."""
    undefined = X.copy()
    undefined[3, 4] = np.nan
    found = verdict((X,), undefined)
    assert found.status is Status.BASELINE_FAILED
    assert "the reference gives NaN for 1 of 6144 elements of output 0, seed 0" in found.message
    assert "(3, 4)" in found.message and "get_inputs" in found.message
    assert verdict((undefined.copy(),), undefined).undefined
    nothing = verdict((X * np.float32(np.nan),), X * np.float32(np.nan))
    assert nothing.status is Status.BASELINE_FAILED
    wrong = X.copy()
    wrong[5, 5] = np.nan
    found = verdict((wrong,), undefined)
    assert found.status is Status.WRONG_NUMBERS and "first at (5, 5): nan for" in found.message


def test_numpys_widening_is_not_asked_of_kernels():
    wide = X.astype(np.float64)
    assert expected_dtype(wide, [X, 1e-5]) == np.float32
    assert expected_dtype(X, [X]) == np.float32
    assert expected_dtype(np.arange(3), [X]) == np.arange(3).dtype


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1.0, 1e18, 1e30])
def test_norms_keep_their_accuracy_at_any_scale(scale):
    a = (GENERATOR.normal(size=(7, 130)) * scale).astype(np.float32)
    b = (GENERATOR.normal(size=(7, 130)) * scale).astype(np.float32)
    exact = np.linalg.norm(a.astype(np.float64))
    assert l2(a) == pytest.approx(exact, rel=1e-5)
    difference = np.linalg.norm((a - b).astype(np.float64))
    assert l2_difference(a, b) == pytest.approx(difference, rel=1e-5)


def test_norms_of_odd_shapes():
    for shape in [(), (0,), (1,), (5,), (256,), (3, 0), (2, 3, 4)]:
        a = GENERATOR.normal(size=shape).astype(np.float32)
        assert l2(np.asarray(a)) == pytest.approx(float(np.sqrt(np.sum(np.square(a)))), rel=1e-5)


# The published door.


def published(output, reference, source="x = 1\n", tmp_path=None, rel_tol=2e-5):
    program = tmp_path / "kernel.py"
    program.write_text(source)
    result = eval_numpy.KernelProperties()
    eval_numpy.check_precision_and_correctness(program, output, reference, result, rel_tol)
    return result


def test_the_published_gate(tmp_path):
    assert published([X], X, tmp_path=tmp_path).correct
    near = X * np.float32(1 + 1e-5)
    assert published([near], (X,), tmp_path=tmp_path).correct
    far = X * np.float32(1 + 3e-5)
    result = published([far], X, tmp_path=tmp_path)
    assert not result.correct and "l2norm rel diff" in result.metadata["correctness_error"][0]
    assert published([far], X, rel_tol=4e-5, tmp_path=tmp_path).correct


def test_the_published_precision_rule(tmp_path):
    result = published([X], X, "y = nl.bfloat16\n", tmp_path=tmp_path)
    assert result.metadata == {"correctness_error": "Float16 is used in the program."}
    assert published([X], X, "y = 1  # float16\n", tmp_path=tmp_path).correct


@pytest.mark.parametrize(
    "output",
    [[X, X], [X.T], [X * np.nan], [np.zeros_like(X)]],
    ids=["count", "shape", "nan", "zero"],
)
def test_the_published_faults(tmp_path, output):
    result = published(output, X, tmp_path=tmp_path)
    assert not result.correct and result.metadata["correctness_error"]


def test_published_scalars(tmp_path):
    assert published([np.float32(1.0)], np.float32(1.0), tmp_path=tmp_path).correct
    assert not published([2], 3, tmp_path=tmp_path).correct


@pytest.mark.parametrize(
    ("factor", "in_single", "passes"),
    [(1.01, 1.0, True), (1.01, 1.01, False), (1.01, None, True), (1.002, 1.002, True)],
)
def test_an_error_that_stays_in_float32_is_no_rounding(factor, in_single, passes):
    """To either side, so that no mean tells; of less than half a rounding nobody asks."""
    unit, zero = Precision(("bfloat16",)).unit, np.zeros((), np.float32)
    sides = GENERATOR.choice((-1, 1), X.shape)
    exact = Exact(X, 32 * unit * np.abs(X), X != 0, zero, zero)
    asked = trial(X)._replace(exact=(exact,), name=HIDDEN)
    judge = Gate(precision=Precision(("bfloat16",)))
    if in_single is not None:
        judge = judge._replace(unrounded=lambda double: [X * in_single**sides])
    found = judge.judge(asked, [X], [(X * factor**sides).astype(np.float32)])
    assert (found.status is Status.CORRECT) is passes, found.message
    assert passes or "error beside rounding" in found.message
