"""A plugin of pytest for suites that run on the simulated core (`accelopt python -m pytest`).

A test that needs a part of NKI which the core does not have is reported as unsupported, neither passed
nor failed; a module that is missing is named with how to bring it. A kernel is no test, whatever its
name. `--accelopt-seed` seeds NumPy before every test: some suites hold for most draws only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accelopt.sim import standin
from accelopt.sim.dialects.host import HOST
from accelopt.sim.dialects.neuronxcc.kernel import Kernel as NeuronxccKernel
from accelopt.sim.dialects.nki.kernel import Kernel
from accelopt.sim.errors import Unsupported

UNSUPPORTED = "unsupported"


def pytest_addoption(parser: Any) -> None:
    """Options of ours, which pytest-xdist hands to its workers too."""
    group = parser.getgroup("accelopt")
    group.addoption("--accelopt-target", default="", help="generation of kernels that say none")
    group.addoption("--accelopt-nki", default="", help="version of nki that kernels are for")
    group.addoption("--accelopt-seed", type=int, help="of NumPy's generator, for every test")


def pytest_configure(config: Any) -> None:
    """The simulated packages, in a worker of pytest-xdist too."""
    standin.install(always=True)
    HOST.target = config.getoption("--accelopt-target") or HOST.target
    HOST.version = config.getoption("--accelopt-nki") or HOST.version


def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> list[Any] | None:
    """No test is made of a kernel."""
    return [] if isinstance(obj, (Kernel, NeuronxccKernel)) else None


def pytest_runtest_setup(item: Any) -> None:
    """Seeds the draws of a test."""
    seed = item.config.getoption("--accelopt-seed")
    if seed is not None:
        np.random.seed(seed)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    """A test that asks for what the simulated core lacks neither passes nor fails."""
    outcome = yield
    _unsupported(outcome.get_result(), call.excinfo)  # type: ignore[attr-defined]


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: Any) -> Iterator[None]:
    """The same of a file that asks for it when it is imported."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    _unsupported(report, report.call.excinfo)


def _unsupported(report: Any, raised: Any) -> None:
    """Marks a report of what ended in Unsupported, which pytest may have wrapped."""
    error = None if raised is None else raised.value
    while error is not None and not isinstance(error, Unsupported):
        error = error.__cause__
    if error is not None:
        report.outcome, report.longrepr = "skipped", str(error).strip().partition("\n")[0]
        report.user_properties = [*getattr(report, "user_properties", ()), (UNSUPPORTED, "")]


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """The category that the summary counts it under."""
    return (UNSUPPORTED, "u", UNSUPPORTED.upper()) if _is_unsupported(report) else None


def _is_unsupported(report: Any) -> bool:
    return any(name == UNSUPPORTED for name, _ in getattr(report, "user_properties", ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What is unsupported, by test, and how to bring what is missing."""
    said = terminalreporter.stats
    for report in [*said.get(UNSUPPORTED, ()), *filter(_is_unsupported, said.get("skipped", ()))]:
        terminalreporter.write_line(f"UNSUPPORTED {report.nodeid} - {report.longrepr}")
    for report in [*said.get("error", ()), *said.get("failed", ())]:
        absent = re.search(r"No module named '([\w.]+)'", str(report.longrepr))
        if absent:
            file = Path(str(report.nodeid).partition("::")[0])
            terminalreporter.write_line(
                f"MISSING {report.nodeid} - {how_to_bring(absent[1], file)}"
            )


def how_to_bring(module: str, file: Path) -> str:
    """A folder around the file that holds the module, or the command that installs its package."""
    top, path = module.partition(".")[0], Path(*module.split("."))
    for folder in file.resolve().parents:
        for place in (folder, folder / "src"):
            if (place / path).is_dir() or (place / path).with_suffix(".py").is_file():
                return f"needs {module}, which lies in {place}: set PYTHONPATH={place}"
            if (place / top).is_dir():
                return f"needs {module}, which {place / top} does not have"
    return f"needs {module}: {sys.executable} -m pip install {top}"
