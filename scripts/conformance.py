"""Runs a folder of NKI test files on the simulated core and says what passes, by name.

    python scripts/conformance.py FOLDER [--jobs 2] [--timeout 600] [--verbose]

Files are run by pytest, one child process each, so that one that hangs or dies takes nothing else
with it. A test that needs a part of NKI which the simulated core does not have counts as
unsupported, not as failed. Exits with 1 when a test fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

OUTCOMES = ("pass", "unsupported", "fail", "skip")


class Result(NamedTuple):
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
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return run_file(options.suite, options.child)
    files = list(test_files(options.suite))
    if not files:
        print(f"no test files in {options.suite}")
        return 1
    with ThreadPoolExecutor(options.jobs) as pool:
        batches = pool.map(lambda file: in_child(file, options.timeout), files)
        results = [result for batch in batches for result in batch]
    report(results, options.verbose)
    return 1 if any(result.outcome == "fail" for result in results) else 0


def test_files(suite: Path) -> Iterator[Path]:
    """Files that pytest would collect, in order."""
    if suite.is_file():
        yield suite
        return
    for file in sorted(suite.rglob("*.py")):
        if file.name.startswith("test_") or file.name.endswith("_test.py"):
            yield file


def in_child(file: Path, timeout: float) -> list[Result]:
    """The results of one file, run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results"
        path.touch()
        command = [sys.executable, __file__, str(file.resolve()), "--child", str(path)]
        problem = ""
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout, cwd=folder
            )
            if done.returncode not in (0, 1, 5):  # passed, failed, no tests
                why = (done.stderr or done.stdout).strip().splitlines()
                problem = why[-1] if why else f"exit {done.returncode}"
        except subprocess.TimeoutExpired:
            problem = f"no end after {timeout:.0f} s"
        results = [Result(*json.loads(line)) for line in path.read_text().splitlines()]
    return [*results, Result(file.name, "fail", problem)] if problem else results


def run_file(file: Path, results: Path) -> int:
    """In the child: one file under pytest, one line of JSON a test into `results`."""
    import pytest

    from accelopt.sim import standin

    standin.install()
    flags = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-W", "ignore"]
    return int(pytest.main([str(file), *flags], plugins=[_Reporter(results)]))


class _Reporter:
    """A pytest plugin that writes results as they come, and takes no kernel for a test."""

    def __init__(self, results: Path) -> None:
        self.results = results

    def pytest_pycollect_makeitem(self, collector: Any, name: str, obj: Any) -> Any:
        from accelopt.sim.nki.kernel import Kernel

        return [] if isinstance(obj, Kernel) else None

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.excinfo is None:
            if call.when == "call":
                self._write(item.nodeid, "pass", "")
            return
        error = call.excinfo.value
        if type(error).__name__ == "Skipped":
            self._write(item.nodeid, "skip", str(error))
        else:
            self._write(item.nodeid, outcome_of(error), one_line(error))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            text = str(report.longrepr).strip().splitlines()
            kind = "unsupported" if "[unsupported]" in str(report.longrepr) else "fail"
            self._write(report.nodeid, kind, text[-1] if text else "cannot be imported")

    def _write(self, test: str, outcome: str, detail: str) -> None:
        with self.results.open("a") as file:
            file.write(json.dumps([test, outcome, detail]) + "\n")


def outcome_of(error: BaseException) -> str:
    """unsupported for what the simulated core names as such, else fail."""
    from accelopt.sim.errors import Unsupported

    return "unsupported" if isinstance(error, Unsupported) else "fail"


def one_line(error: BaseException) -> str:
    """The error's type and first line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"


def report(results: list[Result], verbose: bool) -> None:
    """What did not pass, by name, and the counts."""
    for outcome in OUTCOMES:
        for result in results:
            if result.outcome == outcome and (verbose or outcome != "pass"):
                print(f"{outcome:<12} {result.test}  {result.detail}")
    counts = Counter(result.outcome for result in results)
    print(", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]))


if __name__ == "__main__":
    sys.exit(main())
