"""The installed flashinfer-bench package, told by its features and not by its version.

0.1.2 has a dataclass `BenchmarkConfig`; the later API resolves one configuration a definition.
Importing the package is dear (torch), so it happens inside functions only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

from accelopt import errors
from accelopt.evaluation import Row
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Trace
from accelopt.kernels.gpu.bench.process.comparison import Tolerance

if TYPE_CHECKING:
    import flashinfer_bench


class PackageSettings(Row):
    """The package's own settings for one definition."""

    tolerance: Tolerance
    warmup_runs: int
    iterations: int
    num_trials: int


DEFAULT_SETTINGS = PackageSettings(
    tolerance=Tolerance(), warmup_runs=10, iterations=50, num_trials=3
)
LOW_BIT_MATCHED_RATIO = 0.95  # of the package's low-bit evaluator, for fp8 mixtures of experts


def available(name: str) -> bool:
    """Whether a package can be imported."""
    return importlib.util.find_spec(name) is not None


def require() -> None:
    """Raises MissingExtra with the install line when the extra is not there."""
    errors.require("flashinfer", torch="torch", flashinfer_bench="flashinfer-bench")


def settings(definition: Definition) -> PackageSettings:
    """Tolerances and run counts that the package uses for `definition`; its defaults without it. Ours:
    a definition may state `tolerance`, with `atol` and `rtol`."""
    if stated := (definition.model_extra or {}).get("tolerance"):
        return _with(DEFAULT_SETTINGS, Tolerance(stated["atol"], stated["rtol"], 1.0))
    found = _package_settings(definition) if available("flashinfer_bench") else DEFAULT_SETTINGS
    if "moe_fp8_block_scale" in definition.name and found.tolerance.matched_ratio >= 1.0:
        return _with(found, found.tolerance._replace(matched_ratio=LOW_BIT_MATCHED_RATIO))
    return found


def _with(settings: PackageSettings, tolerance: Tolerance) -> PackageSettings:
    return settings.model_copy(update={"tolerance": tolerance})


def _package_settings(definition: Definition) -> PackageSettings:
    from flashinfer_bench import BenchmarkConfig

    resolved: Any = BenchmarkConfig()
    if hasattr(BenchmarkConfig, "resolve_eval_config"):
        from flashinfer_bench import Definition as PackageDefinition

        default = getattr(BenchmarkConfig, "default", BenchmarkConfig)()
        resolved = default.resolve_eval_config(
            PackageDefinition.model_validate_json(definition.model_dump_json(exclude_unset=True))
        )
    ratio = getattr(resolved, "required_matched_ratio", None)
    return PackageSettings(
        tolerance=Tolerance(
            float(getattr(resolved, "atol", 1e-2)),
            float(getattr(resolved, "rtol", 1e-2)),
            1.0 if ratio is None else float(ratio),
        ),
        warmup_runs=int(getattr(resolved, "warmup_runs", 10)),
        iterations=int(getattr(resolved, "iterations", 50)),
        num_trials=int(getattr(resolved, "num_trials", 3)),
    )


@contextlib.contextmanager
def without_shared_locks() -> Iterator[None]:
    """For the package's first import in a confined child: it makes a lock between processes, which
    such a child cannot make and, alone with its solution, does not need."""
    shared, multiprocessing.Lock = multiprocessing.Lock, threading.Lock  # type: ignore[assignment]
    try:
        yield
    finally:
        multiprocessing.Lock = shared  # type: ignore[method-assign]


def timer() -> Callable[..., float]:
    """The package's own timer."""
    with without_shared_locks():
        from flashinfer_bench.bench import timing
    timing.Lock = threading.Lock
    time_runnable: Callable[..., float] = timing.time_runnable
    return time_runnable


def as_package_trace(trace: Trace) -> flashinfer_bench.Trace:
    """Our trace as the package's own object."""
    from flashinfer_bench import Trace as PackageTrace

    return PackageTrace.model_validate_json(trace.model_dump_json(exclude_none=True))


def versions() -> dict[str, str]:
    """Installed versions of what a measurement depends on. (`__version__` of 0.1.2 is wrong.)"""
    found = {}
    for name in ("flashinfer-bench", "flashinfer-python", "torch", "triton"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
