"""The constants of a machine from the latencies of microkernels: least squares, held to the table.

A constant starts at the table's value and is held there as loosely as `FREEDOM` says, so that the
measurements decide wherever they tell it, and the table where they do not. How much they tell is known
from how every latency changes with every constant: what a second set of measurements as noisy as this
one could have made of the constant is its error, and with an error of more than `SEEN` it was not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

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
FREEDOM = 0.7
"""Standard deviation of the logarithm of a constant: a factor of two is nothing unusual."""
SEEN = 0.1
NOISE = 0.005
"""Least error of a latency, as a fraction, that is counted with."""
STEP = 0.02
MOST_STEPS = 12


def constants(core: Hardware) -> tuple[str, ...]:
    """What a fit changes: every rate and time of a generation that is not zero."""
    return tuple(
        name
        for name in Hardware.constants()
        if (core.source(name).unit in UNITS or name in SHARES)
        and name not in DOCUMENTED
        and getattr(core, name) > 0
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


def fit(programs: Sequence[Program], measured_ms: Sequence[float], start: Hardware) -> Fit:
    """The constants with which the programs take the measured times; all others stay `start`'s."""
    from scipy.optimize import least_squares  # heavy; nothing else needs it

    names = constants(start)
    measured = np.log(np.asarray(measured_ms, float))
    held = NOISE / FREEDOM * np.eye(len(names))

    def machine(factors: np.ndarray) -> Hardware:
        values = {
            name: getattr(start, name) * float(np.exp(factor))
            for name, factor in zip(names, factors, strict=True)
        }
        return replace(start, **values)  # type: ignore[arg-type]

    def missing(factors: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.log(predicted(programs, [machine(factors)])[:, 0]) - measured
        return found

    def changes(factors: np.ndarray) -> np.ndarray:
        cores = [machine(factors), *(machine(factors + STEP * row) for row in np.eye(len(names)))]
        latencies = np.log(predicted(programs, cores))
        slopes: np.ndarray = (latencies[:, 1:] - latencies[:, :1]) / STEP
        return slopes

    solved = least_squares(
        lambda factors: np.concatenate((missing(factors), held @ factors)),
        np.zeros(len(names)),
        lambda factors: np.vstack((changes(factors), held)),
        loss="soft_l1",
        f_scale=10 * NOISE,
        max_nfev=MOST_STEPS,
        xtol=1e-3,
        ftol=1e-4,
    )
    ratios = np.exp(missing(solved.x))
    found = _known(machine(solved.x), names, changes(solved.x), np.log(ratios))
    return Fit(machine(solved.x), found, ratios)


def _known(
    core: Hardware, names: tuple[str, ...], changes: np.ndarray, missing: np.ndarray
) -> tuple[FoundConstant, ...]:
    noise = max(NOISE, 1.4826 * float(np.median(np.abs(missing))))
    told = changes.T @ changes / noise**2 + np.eye(len(names)) / FREEDOM**2
    covariance = np.linalg.inv(told)
    errors = np.sqrt(np.diag(covariance))
    related = np.abs(covariance / np.outer(errors, errors)) - np.eye(len(names))
    found = []
    for at, name in enumerate(names):
        other = int(related[at].argmax())
        tied = errors[at] > SEEN and related[at, other] > TIED
        partner = names[other] if tied else ""
        found.append(FoundConstant(name, getattr(core, name), float(errors[at]), partner))
    return tuple(found)


TIED = 0.7
"""Correlation of two constants from which on only both together are known."""
