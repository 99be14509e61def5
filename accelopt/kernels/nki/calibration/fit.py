"""The constants of a machine from the latencies of microkernels: least squares, held to the table.

A constant starts at the table's value and is held there as loosely as `FREEDOM` says, so that the
measurements decide wherever they tell it, and the table where they do not. How much they tell is known
from how every latency changes with every constant: what a second set of measurements as noisy as this
one could have made of the constant is its error, and with an error of more than `SEEN` it was not seen.

Instructions have floors and transfers have limits, so a latency that grows with a constant may not
shrink with it. The fit therefore begins with wide differences to both sides, which see beyond a floor,
and ends with narrow ones; and an error is the largest of those that either side gives, and both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from accelopt.hardware import Hardware
from accelopt.sim import timing
from accelopt.sim.program import Program

UNITS = ("cycles", "ns", "B/ns", "ns/B")
SHARES = ("exposed_load", "fp32_exposed_load")
DOCUMENTED = (
    "hbm_bytes_per_ns",
    "quantize_cycles_per_element",
    "tensor_ramp_ns",
    "dynamic_issue_cycles",
)
"""Constants that are no part of a microkernel's time, or stay what the documents say."""
LIMITED_BY = {"dma_strided_ns_per_byte": "dma_strided_ns"}
"""Constants that count up to another one only, so not at all where that is zero."""
FREEDOM = 0.7
"""Standard deviation of the logarithm of a constant: a factor of two is nothing unusual."""
SEEN = 0.1
NOISE = 0.005
"""Least error of a latency, as a fraction, that is counted with."""
STEPS = (0.3, 0.1, 0.02)
"""Differences of the logarithms of constants, one fit after the other."""
MOST_STEPS = 12
"""Of each of them."""
UNLIKELY = 0.003
"""How likely what a fit leaves is smaller yet, with as much noise as is counted with. Of 10,000 drawn sets of
measurements of trn1 with 2.5% of noise, more than a tenth of the constants are then off by more than twice their
errors in 1%; with the noise that is the likeliest in 15%, with the true one in 11%."""


def constants(core: Hardware) -> tuple[str, ...]:
    """What a fit changes: every rate and time of a generation that is not zero, and not held to it."""
    return tuple(
        name
        for name in core.constants()
        if (core.source(name).unit in UNITS or name in SHARES)
        and name not in DOCUMENTED
        and getattr(core, name) > 0
        and getattr(core, LIMITED_BY.get(name, name)) > 0
    )


class FoundConstant(NamedTuple):
    """One constant: its value, its error as a fraction, and the constant that it is known together
    with only, empty where there is none."""

    name: str
    value: float
    error: float
    together_with: str = ""

    @property
    def seen(self) -> bool:
        """Whether the measurements tell it."""
        return self.error <= SEEN


class Fit(NamedTuple):
    """The machine, what is known of each constant, and predicted over measured by microkernel."""

    hardware: Hardware
    found: tuple[FoundConstant, ...]
    ratios: np.ndarray

    @property
    def worst(self) -> float:
        """The largest error of a prediction, as a fraction."""
        return float(np.abs(self.ratios - 1).max())


def predicted(programs: Sequence[Program], cores: Sequence[Hardware]) -> np.ndarray:
    """Latencies in ms, (programs, cores); the cores differ in constants of time."""
    return np.array([timing.latencies(program, cores) for program in programs])


def fit(
    rows: Sequence[Any],
    measured: Sequence[float],
    start: Hardware,
    predict: Callable[[Sequence[Any], Sequence[Hardware]], np.ndarray] = predicted,
    least: float = NOISE,
) -> Fit:
    """The constants with which the programs `rows` take the measured ms; all others stay `start`'s. Other
    quantities than latencies are those that `predict` gives of the rows, on every core; `least` is the error of
    one, as a fraction, that is counted with in any case."""
    from scipy.optimize import least_squares  # the extra `calibrate`

    names = constants(start)
    wanted = np.log(np.asarray(measured, float))
    own = np.eye(len(names))

    def machine(factors: np.ndarray) -> Hardware:
        values = {
            name: getattr(start, name) * float(np.exp(factor))
            for name, factor in zip(names, factors, strict=True)
        }
        return replace(start, **values)  # type: ignore[arg-type]

    def missing(*points: np.ndarray) -> np.ndarray:
        """Predicted over measured as logarithms, (measured, points)."""
        latencies = np.log(predict(rows, [machine(at) for at in points]))
        found: np.ndarray = latencies - wanted[:, None]
        return found

    def slopes(at: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How every row changes with every constant: upwards, downwards, and between the two."""
        around = missing(at, *(at + step * own), *(at - step * own))
        here, above, below = np.split(around, (1, 1 + len(names)), axis=1)
        return (above - here) / step, (here - below) / step, (above - below) / (2 * step)

    def refined(begin: np.ndarray, step: float, noise: float) -> tuple[np.ndarray, float]:
        """The factors that fit best, looked for from `begin` on, and the noise of a latency."""
        held = noise / FREEDOM * own  # further rows: the table's value, and how loosely it holds
        found = least_squares(
            lambda at: np.concatenate((missing(at)[:, 0], held @ at)),
            begin,
            lambda at: np.vstack((slopes(at, step)[2], held)),
            loss="soft_l1",
            f_scale=10 * least,
            max_nfev=MOST_STEPS,
            xtol=1e-4,
            ftol=1e-4,
        )
        own_rows = slice(len(wanted))
        return found.x, max(
            least, _noise(found.fun[own_rows], found.jac[own_rows], noise, 10 * least)
        )

    factors, noise = np.zeros(len(names)), least
    for step in STEPS:
        factors, noise = refined(factors, step, noise)
    core, ways = machine(factors), slopes(factors, SEEN / 2)
    return Fit(core, _known(core, names, ways, noise), np.exp(missing(factors)[:, 0]))


def _covariance(changes: np.ndarray, noise: float) -> np.ndarray:
    told = changes.T @ changes / noise**2 + np.eye(changes.shape[1]) / FREEDOM**2
    found: np.ndarray = np.linalg.inv(told)
    return found


def _noise(left: np.ndarray, changes: np.ndarray, noise: float, scale: float) -> float:
    """The noise of a latency by what the fit leaves of it: the largest that this is likely to come from, for
    few rows tell it badly, and the constants take up their part. `scale` is that of the loss, whose weights
    the rows have."""
    from scipy.stats import chi2  # the extra `calibrate`

    taken = np.einsum("ri,ij,rj->", changes, _covariance(changes, noise), changes) / noise**2
    free = len(left) - float(taken)
    if free < 1:
        return noise
    weights = 1 / np.sqrt(1 + (left / scale) ** 2)
    mean = float((weights * left**2).sum() / weights.sum())
    return float(np.sqrt(mean * len(left) / chi2.ppf(UNLIKELY, free)))


def _known(
    core: Hardware, names: tuple[str, ...], ways: Sequence[np.ndarray], noise: float
) -> tuple[FoundConstant, ...]:
    """What is known of each constant, by those of the slopes that tell least of it."""
    covariances = [_covariance(changes, noise) for changes in ways]
    found = []
    for at, name in enumerate(names):
        covariance = max(covariances, key=lambda one: one[at, at])
        errors = np.sqrt(np.diag(covariance))
        related = np.abs(covariance[at] / (errors[at] * errors))
        related[at] = 0
        other = int(related.argmax())
        tied = errors[at] > SEEN and related[other] > TIED
        partner = names[other] if tied else ""
        found.append(FoundConstant(name, getattr(core, name), float(errors[at]), partner))
    return tuple(found)


TIED = 0.7
"""Correlation of two constants from which on only both together are known."""
