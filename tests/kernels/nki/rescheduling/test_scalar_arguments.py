"""Plain arguments of kernels by schedule: right for every value, or asked for with an assert."""

from pathlib import Path

import numpy as np
import pytest
from kernel_heads import function_of, neuronxcc_kernel
from warm import computed

from accelopt.evaluation import Status
from accelopt.kernels.nki.arguments import ParameterFacts, PlainValue
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.nests.nest import default_nest
from accelopt.kernels.nki.rescheduling.lifted_kernel import lifted_kernel

HEAD = neuronxcc_kernel("")
TEMPERATURE = function_of("x, temperature")("""
tile = nl.load(x) / temperature
powers = nl.exp(tile - nl.max(tile, axis=1, keepdims=True))
nl.store(out, powers / nl.sum(powers, axis=1, keepdims=True))
""")
SLOPE = function_of("x, bias, slope")("""
tile = nl.load(x) + nl.load(bias) * slope
powers = nl.exp(tile - nl.max(tile, axis=1, keepdims=True))
nl.store(out, powers / nl.sum(powers, axis=1, keepdims=True))
""")
FLAGS = function_of("x, eps=1e-6, scale=None, centred=False, parts=1")("""
tile = nl.load(x)
if centred:
    tile = tile - nl.mean(tile, axis=1, keepdims=True)
first = nl.load(x[:, 0 : 256 // parts])
tile = tile * nl.rsqrt(nl.mean(first * first, axis=1, keepdims=True) + eps)
if scale is not None and scale != 0:
    tile = tile * scale
nl.store(out, tile)
""")
BRANCHES = TEMPERATURE.replace("temperature):", "temperature, halved=False):").replace(
    "    powers =", "    if halved:\n        tile = tile * 0.5\n    powers ="
)
CAP = function_of("x, cap", shape="(128, 1)")("""
capped = nl.tanh(nl.load(x) * (1.0 / cap)) * cap
nl.store(out, nl.sum(capped, axis=1, keepdims=True))
""")
SMOOTHED = function_of("x, smoothing", shape="(128, 1)")("""
tile = nl.load(x)
least, total = nl.min(tile, axis=1, keepdims=True), nl.sum(tile, axis=1, keepdims=True)
nl.store(out, least * FACTOR - total * (smoothing / 256))
""")
SHAPE = (128, 256)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def by_schedule(folder: Path, text: str, **plain: PlainValue) -> Path:
    """The kernel by a schedule, lifted with plain arguments as drawn."""
    path = folder / "author.py"
    path.write_text(HEAD + text)
    tensors = [name for name in ("x", "bias") if f"{name}," in text]
    given = {name: ParameterFacts(SHAPE) for name in tensors}
    given |= {name: ParameterFacts((), value=value) for name, value in plain.items()}
    lifted = lifted_kernel(path.read_text(), path, given)
    made = folder / "made.py"
    made.write_text(lifted.authored(lifted.lowered(default_nest(lifted.algorithm)).source))
    return made


def run(path: Path, *arguments: object) -> np.ndarray:
    (found,) = computed(path, arguments)
    return found


def refused(path: Path, *arguments: object) -> str:
    with pytest.raises(KernelFailure) as failure:
        run(path, *arguments)
    assert failure.value.status is Status.COMPILE_ERROR
    return failure.value.message


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize(
    ("text", "drawn"), [(TEMPERATURE, 0.7), (TEMPERATURE, -0.7), (BRANCHES, 0.7)]
)
def test_a_maximum_of_what_an_argument_scales_asks_for_its_sign(
    tmp_path: Path, x: np.ndarray, text: str, drawn: float
) -> None:
    made = by_schedule(tmp_path, text, temperature=drawn)
    for temperature in (drawn, 3 * drawn):
        assert np.allclose(run(made, x, temperature), softmax(np.float64(x) / temperature), 1e-5)
    word = "positive" if drawn > 0 else "negative"
    assert f"temperature must be {word}" in refused(made, x, -drawn)


def test_an_argument_that_only_adds_up_has_any_sign(tmp_path: Path, x: np.ndarray) -> None:
    made = by_schedule(tmp_path, SLOPE, slope=0.25)
    assert "assert slope" not in made.read_text()
    for slope in (0.25, -2.0, 0.0, 1.0):
        assert np.allclose(
            run(made, x, x[::-1].copy(), slope), softmax(np.float64(x) + slope * x[::-1]), 1e-5
        )


def test_branches_that_were_not_taken_are_asked_for(tmp_path: Path, x: np.ndarray) -> None:
    made = by_schedule(tmp_path, FLAGS, eps=1e-5, scale=0.5)
    text = made.read_text()
    assert "assert eps" not in text  # any number, of either sign, and none
    exact = np.float64(x) / np.sqrt(np.mean(np.float64(x) ** 2, axis=1, keepdims=True) + 0.5)
    assert np.allclose(run(made, x, 0.5, -3.0), -3 * exact, 1e-5)
    assert "scale must not be 0" in refused(made, x, 0.5, 0.0)
    assert "centred must be False" in refused(made, x, 0.5, 1.0, True)
    assert "parts must be 1" in refused(made, x, 0.5, 1.0, False, 2)


def test_an_argument_that_is_not_given_must_stay_so(tmp_path: Path, x: np.ndarray) -> None:
    made = by_schedule(tmp_path, FLAGS, eps=1e-5)
    assert "scale must be None" in refused(made, x, 1e-5, 2.0)
    assert run(made, x, 0.25).shape == SHAPE


@pytest.mark.parametrize("cap", [30.0, 50.0, 7.3, 41.0])
def test_an_inverse_is_known_however_it_is_rounded(
    tmp_path: Path, x: np.ndarray, cap: float
) -> None:
    # Of many numbers the inverse of the inverse, in fp32, is another one.
    made = by_schedule(tmp_path, CAP, cap=cap)
    assert "1 / cap" in made.read_text()
    for value in (cap, 11.0):
        right = (np.tanh(x / value) * value).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(run(made, x, value), right, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("factor", "pinned"), [("(1.0 - smoothing)", False), ("smoothing ** 1.5", True)]
)
def test_what_is_made_of_an_argument_is_known_or_its_value_asked_for(
    tmp_path: Path, x: np.ndarray, factor: str, pinned: bool
) -> None:
    """Evidence: label smoothing, whose kernels take s as 1 - s and s / V."""
    made = by_schedule(tmp_path, SMOOTHED.replace("FACTOR", factor), smoothing=0.125)
    for value in (0.125,) if pinned else (0.125, 0.3):
        weight = value**1.5 if pinned else 1 - value
        right = np.float64(x).min(1) * weight - np.float64(x).sum(1) * value / 256
        np.testing.assert_allclose(run(made, x, value)[:, 0], right, rtol=1e-4, atol=1e-4)
    if pinned:
        assert "smoothing must be 0.125" in refused(made, x, 0.3)
    else:
        assert "1 - smoothing" in made.read_text() and "smoothing / 256" in made.read_text()
