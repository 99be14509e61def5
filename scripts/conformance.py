"""Runs a folder of NKI test files on the simulated core and says what passes, by name.

    python scripts/conformance.py FOLDER [--path SRC] [--seed 0] [--jobs 2] [-- PYTEST FLAGS]

Files are run by pytest, one child process each, so that one that hangs or dies takes nothing else
with it; what follows `--` goes to pytest (`-- -k softmax --simulation-only`). A test that needs a
part of NKI which the simulated core does not have counts as unsupported; one that needs a module
which is not there is missing, and the report says how to bring it. Exits with 1 when a test fails or
is missing.

Before every test NumPy's generator is seeded: some tests hold for most draws only (in 28% of them
the documentation's `test_dropout` draws no probability below 1, drops everything, and fails).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

OUTCOMES = ("pass", "unsupported", "missing", "fail", "skip")


class TestResult(NamedTuple):
    """What one test came to; `detail` is one line on why it did not pass."""

    test: str
    outcome: str
    detail: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", type=Path, help="a folder of test files, or one file")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a file")
    parser.add_argument("--verbose", action="store_true", help="show the passing tests too")
    parser.add_argument(
        "--path", type=Path, action="append", default=[], help="a folder the tests import from"
    )
    parser.add_argument("--seed", type=int, default=0, help="of NumPy's generator, for every test")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given, flags = _split(sys.argv[1:])
    options = parser.parse_args(given)
    if options.child:
        return run_file(options.suite, options.child, options.seed, flags)
    files = list(test_files(options.suite))
    if not files:
        print(f"no test files in {options.suite}")
        return 1
    extra = ["--seed", str(options.seed), "--", *flags]

    def run(file: Path) -> list[TestResult]:
        return in_child(file, options.timeout, options.path, extra)

    with ThreadPoolExecutor(options.jobs) as pool:
        results = [result for batch in pool.map(run, files) for result in batch]
    report(results, options.verbose)
    return 1 if any(result.outcome in ("fail", "missing") for result in results) else 0


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is before and what is after `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def test_files(suite: Path) -> Iterator[Path]:
    """Files that pytest would collect, in order."""
    if suite.is_file():
        yield suite
        return
    for file in sorted(suite.rglob("*.py")):
        if file.name.startswith("test_") or file.name.endswith("_test.py"):
            yield file


def in_child(file: Path, timeout: float, path: list[Path], extra: list[str]) -> list[TestResult]:
    """The results of one file, run in a process of its own that imports from `path` too."""
    searched = [str(folder.resolve()) for folder in path]
    if os.environ.get("PYTHONPATH"):
        searched.append(os.environ["PYTHONPATH"])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(searched)}
    with tempfile.TemporaryDirectory() as folder:
        results_file = Path(folder) / "results"
        results_file.touch()
        command = [sys.executable, __file__, str(file.resolve()), "--child", str(results_file)]
        problem = ""
        try:
            done = subprocess.run(
                [*command, *extra],
                capture_output=True,
                text=True,
                timeout=timeout,
                cwd=folder,
                env=environment,
            )
            if done.returncode not in (0, 1, 5):  # passed, failed, no tests
                why = (done.stderr or done.stdout).strip().splitlines()
                problem = why[-1] if why else f"exit {done.returncode}"
        except subprocess.TimeoutExpired:
            problem = f"no end after {timeout:.0f} s"
        results = [TestResult(*json.loads(line)) for line in results_file.read_text().splitlines()]
    return [*results, TestResult(file.name, "fail", problem)] if problem else results


def run_file(file: Path, results: Path, seed: int, flags: list[str]) -> int:
    """In the child: one file under pytest, one line of JSON a test into `results`."""
    import pytest

    from accelopt.sim import standin

    standin.install()
    own = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-W", "ignore"]
    return int(pytest.main([str(file), *own, *flags], plugins=[_Reporter(results, file, seed)]))


class _Reporter:
    """A pytest plugin that writes results as they come, and takes no kernel for a test."""

    def __init__(self, results: Path, file: Path, seed: int) -> None:
        self.results = results
        self.file = file
        self.seed = seed

    def pytest_pycollect_makeitem(self, collector: Any, name: str, obj: Any) -> Any:
        from accelopt.sim.dialects.neuronxcc.kernel import Kernel

        return [] if isinstance(obj, Kernel) else None

    def pytest_runtest_setup(self, item: Any) -> None:
        import numpy as np

        np.random.seed(self.seed)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.excinfo is None:
            if call.when == "call":
                self._write(item.nodeid, "pass", "")
            return
        error = call.excinfo.value
        if type(error).__name__ == "Skipped":
            self._write(item.nodeid, "skip", str(error))
        else:
            self._write(item.nodeid, *verdict(error, self.file))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            text = str(report.longrepr)
            last = (text.strip().splitlines() or ["cannot be imported"])[-1]
            absent = re.search(r"No module named '([\w.]+)'", text)
            if absent:
                self._write(report.nodeid, "missing", how_to_bring(absent[1], self.file))
            else:
                kind = "unsupported" if "[unsupported]" in text else "fail"
                self._write(report.nodeid, kind, last)

    def _write(self, test: str, outcome: str, detail: str) -> None:
        with self.results.open("a") as file:
            file.write(json.dumps([test, outcome, detail]) + "\n")


def verdict(error: BaseException, file: Path) -> tuple[str, str]:
    """The outcome of a test that ended in an error, and why."""
    from accelopt.sim.errors import Unsupported

    if isinstance(error, ModuleNotFoundError) and error.name:
        return "missing", how_to_bring(error.name, file)
    return "unsupported" if isinstance(error, Unsupported) else "fail", one_line(error)


def how_to_bring(module: str, file: Path) -> str:
    """A folder around the file that holds the module, or the command that installs it."""
    top = module.partition(".")[0]
    for folder in file.resolve().parents:
        for place in (folder, folder / "src"):
            if (place / top).is_dir() or (place / f"{top}.py").is_file():
                return f"needs {module}, which lies in {place}: add --path {place}"
    return f"needs {module}: {sys.executable} -m pip install {top}"


def one_line(error: BaseException) -> str:
    """The error's type and first line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"


def report(results: list[TestResult], verbose: bool) -> None:
    """What did not pass, by name, and the counts."""
    for outcome in OUTCOMES:
        for result in results:
            if result.outcome == outcome and (verbose or outcome != "pass"):
                print(f"{outcome:<12} {result.test}  {result.detail}")
    counts = Counter(result.outcome for result in results)
    print(", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]))


if __name__ == "__main__":
    sys.exit(main())
