"""How much of the vendor's kernel library (aws-neuron/nki-library) runs right on the simulated core.

    python benchmarks/nki_library.py CHECKOUT [--seconds 120] [--gigabytes 16] [--jobs 2] [--results FILE] [--trace] [--tests -k cumsum]

Runs the library's own fast tests, unchanged, against their own references; what the library's test
framework brings (hosts, uploads, metrics) is left out. Each file runs in a child process, a new one after a
test that ended it; a test that takes too much CPU time or memory ends. Prints a line a test, then counts: tests by outcome, and source
files that emitted instructions in tests that passed. What stands in FILE already is not run again.
Needs torch and allpairspy.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import itertools
import json
import math
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nki_library_hosts import Foreign, compare, draw_in_float32, given_to

TESTS = "test/integration/nkilib"
SOURCES = "src/nkilib_src/nkilib"
BEYOND = {
    "microscaling": r"_x4\b|_mx\b|mxfp|quantize_mx|nc_matmul_mx|e8m0",
    "collectives": r"nki\.collectives|\bncc\.",
    "registers": r"register_(alloc|load|store|move)|dynamic_range|fori_loop|while_loop",
}
"""What a source file must not name to count as one that needs no more than the dialect has."""
COVERAGE_OPTIONS = (
    "coverage filter enable_automatic_boundary_tests enable_invalid_combination_tests "
    "n_tests_per_boundary_value max_invalid_tests"
).split()


def main() -> int:
    """Collect, run, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--tests", nargs=argparse.REMAINDER, default=[], help="pytest's flags")
    parser.add_argument("--seconds", type=float, default=120.0, help="CPU time of one test")
    parser.add_argument(
        "--gigabytes", type=float, default=16.0, help="addresses of a child process"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", default="trn2", help="trn3 for tests of microscaling")
    parser.add_argument("--trace", action="store_true", help="trace and check, execute nothing")
    parser.add_argument("--each", type=int, default=2, help="cases of a test function")
    parser.add_argument("--results", type=Path, help="where results are kept, a line a test")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return run_child(options.checkout, options.child)
    found = first_of_each(collected(options.checkout, options.tests), options.each)
    known = read_results(options.results)
    files: dict[str, list[str]] = defaultdict(list)
    for test in found:
        if test not in known:
            files[test.partition("::")[0]].append(test)

    def run(tests: list[str]) -> None:
        for result in in_child(options, tests):
            known[result["test"]] = result
            if options.results:
                with options.results.open("a") as file:
                    file.write(json.dumps(result) + "\n")

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, files.values()))
    report(options.checkout, [known[test] for test in found])
    return 0


def read_results(path: Path | None) -> dict[str, dict[str, Any]]:
    """Results of an earlier run by test, the last of each."""
    if path is None or not path.exists():
        return {}
    return {r["test"]: r for r in map(json.loads, path.read_text().splitlines())}


def collected(checkout: Path, flags: list[str]) -> list[str]:
    """The fast tests, by pytest's names."""
    command = [
        sys.executable,
        __file__,
        str(checkout),
        "--child",
        json.dumps(["--collect-only", *flags]),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    names = [line for line in done.stdout.splitlines() if "::" in line and " " not in line]
    for line in done.stdout.splitlines():
        if line.startswith("ERROR"):
            print(line)
    return names


def first_of_each(tests: list[str], count: int) -> list[str]:
    """The first cases of every test function."""
    kept: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        kept[test.partition("[")[0]].append(test)
    return [test for cases in kept.values() for test in cases[:count]]


def in_child(options: argparse.Namespace, tests: list[str]) -> list[dict[str, Any]]:
    """What became of the tests of one file. They run in one process; after a test that ended it, the others run
    in another."""
    results: list[dict[str, Any]] = []
    while left := tests[len(results) :]:
        told, ended = _told_by_child(options, left)
        results += [{**r, "test": t} for r, t in zip(told, left, strict=False)]
        if len(told) < len(left):
            outcome = {"outcome": "fail", "detail": ended, "files": []}
            results.append({**outcome, "test": left[len(told)]})
    for result in results:
        print(f"{result['outcome']:<12} {result['test']}  {result['detail'][:300]}", flush=True)
    return results


def _told_by_child(
    options: argparse.Namespace, tests: list[str]
) -> tuple[list[dict[str, Any]], str]:
    """The results of the first tests, all but for one that ends the process, and how it ended."""
    seconds, ended = options.seconds, "the process took too long"
    with tempfile.NamedTemporaryFile("r+") as file:
        own = {"result": file.name, "seconds": seconds, "target": options.target,
               "trace": "trace" * options.trace, "gigabytes": options.gigabytes}  # fmt: skip
        flags = [*tests, *(f"--{name}={value}" for name, value in own.items())]
        command = [sys.executable, __file__, str(options.checkout), "--child", json.dumps(flags)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            limit = 600 + 10 * seconds * len(tests)
            done = subprocess.run(command, capture_output=True, timeout=limit)
            ended = f"the process ended with {done.returncode}"
        told = {r["test"]: r for r in map(json.loads, file.read().splitlines())}
    names = [test.rpartition("::")[2] for test in tests]
    return [told[name] for name in itertools.takewhile(told.__contains__, names)], ended


def report(checkout: Path, results: list[dict[str, Any]]) -> None:
    """The counts."""
    counts = Counter(result["outcome"] for result in results)
    print(", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()))
    reached: dict[str, set[str]] = defaultdict(set)
    for result in results:
        for file in result["files"]:
            reached[file].add(result["outcome"])
    files = {
        str(p.relative_to(checkout)): p.read_text() for p in (checkout / SOURCES).rglob("*.py")
    }
    plain = {f for f, text in files.items() if is_kernel(text) and not beyond(text)}
    right = {f for f, outcomes in reached.items() if "pass" in outcomes}
    print(f"{len(plain)} source files name NKI and need no microscaling, collectives or registers")
    print(f"{len(right & plain)} of them emitted instructions in a test that passed")
    print(f"{len(right - plain)} of the others did as well")


def is_kernel(text: str) -> bool:
    """True for a file that uses NKI."""
    return bool(re.search(r"^(import nki|from nki)", text, re.MULTILINE))


def beyond(text: str) -> list[str]:
    """What else a file needs."""
    return [name for name, pattern in BEYOND.items() if re.search(pattern, text)]


# In the child.


def run_child(checkout: Path, flags: str) -> int:
    """pytest in this process, with the simulated core as the device."""
    given = json.loads(flags)
    own_flags = {
        "--result": "",
        "--seconds": "0",
        "--target": "trn2",
        "--trace": "",
        "--gigabytes": "0",
    }
    own_flags |= dict(f.split("=", 1) for f in given if f.partition("=")[0] in own_flags)
    rest = [f for f in given if f.partition("=")[0] not in own_flags]
    sys.path[:0] = [str(checkout), str(checkout / "src")]
    sys.meta_path.insert(0, Foreign())
    from accelopt.sim import standin

    standin.install(always=True)
    allow_unwritten_outputs()
    scales_of_nki_05()
    from test.utils.common_dataclasses import Platforms

    builtins.Platforms = Platforms  # type: ignore[attr-defined]  # test_qkv_tkg.py lacks the import
    own = ["-q", "--noconftest", "-p", "no:cacheprovider", "--import-mode=importlib", "-W", "ignore",
           "-m", "fast", "--continue-on-collection-errors", "--rootdir", str(checkout), "-c", "/dev/null"]  # fmt: skip
    where = [] if any("::" in flag for flag in rest) else [str(checkout / TESTS)]
    tests = [str(checkout / flag) if "::" in flag else flag for flag in rest]
    result, seconds, target, trace, gigabytes = own_flags.values()
    draw_in_float32(nothing=bool(trace))
    if most := int(float(gigabytes) * 2**30):
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    plugin = Plugin(result, checkout, float(seconds), target, bool(trace))
    return int(pytest.main([*where, *tests, *own], plugins=[plugin]))


def allow_unwritten_outputs() -> None:
    """The library's tests of parts return a tensor that no instruction writes, and compare others."""
    from accelopt.sim import call_sites
    from accelopt.sim.tracer import Tracer

    refuse = Tracer.refuse
    call_sites.NOT_KERNEL_CODE = (*call_sites.NOT_KERNEL_CODE, __file__)

    def lenient(tracer: Tracer, error: Any) -> None:
        if error.identifier != "err_tensor_output_not_written_to":
            refuse(tracer, error)

    Tracer.refuse = lenient  # type: ignore[method-assign]


class Willing:
    """Has every method; those not given do nothing."""

    def __init__(self, **methods: Any) -> None:
        vars(self).update(methods)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: contextlib.nullcontext()


class Plugin:
    """The fixtures of the library's tests, and the result of the one that runs."""

    def __init__(
        self, result: str, checkout: Path, seconds: float, target: str, trace: bool
    ) -> None:
        self.result, self.checkout, self.seconds = result, checkout, seconds
        self.target, self.trace = target, trace
        self.files: set[str] = set()

    @pytest.fixture
    def test_manager(self) -> Any:
        """Runs kernels on the simulated core; whatever else is asked of it, it ignores."""
        return Willing(execute=self.execute)

    @pytest.fixture
    def collector(self) -> Any:
        """Takes metrics and forgets them."""
        return Willing()

    @pytest.fixture
    def platform_target(self) -> Any:
        """The generation asked for."""
        from test.utils.common_dataclasses import Platforms

        return Platforms[self.target.upper()]

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """The cases of tests whose parameters the library's own harness makes, the smallest first."""
        from test.utils import coverage_parametrized_tests as coverage
        from test.utils import ranged_test_harness as ranged

        random.seed(0)
        if ranged.RANGE_TEST_FIXTURE_NAME in metafunc.fixturenames:
            given = getattr(metafunc.function, ranged.RANGE_TEST_CONFIG_ATTR_KEY)
            ids, cases = ranged.RangeTestHarness(given).get_unique_test_cases()
            pairs = [p for p in zip(ids, cases, strict=True) if not p[1].is_negative_test_case]
            pairs.sort(key=lambda pair: size_of(pair[1].tensors))
            values = [case for _, case in pairs]
            names = [name for name, _ in pairs]
            metafunc.parametrize(ranged.RANGE_TEST_FIXTURE_NAME, values, ids=names)
        marker = metafunc.definition.get_closest_marker("coverage_parametrize")
        if marker:
            given = dict(marker.kwargs)
            options = {k: given.pop(k) for k in COVERAGE_OPTIONS if k in given}
            options |= {"coverage": "singles", "enable_automatic_boundary_tests": False,
                        "enable_invalid_combination_tests": False}  # fmt: skip
            made = coverage.generate_parametrized_test_case(
                params=given, filter_func=options.pop("filter", None), **options
            )
            made.sort(key=lambda case: size_of({"": dict(enumerate(case.values))}))
            metafunc.parametrize(*coverage.extract_parametrize_args(given, made)[:2])

    def execute(self, arguments: Any) -> None:
        """Trace, send through the bytes in which Programs travel, execute, compare with the reference."""
        from accelopt.sim import compute, rules, serial
        from accelopt.sim.dialects.nki.kernel import Kernel, trace_kernel
        from accelopt.sim.dialects.nki.kernel import _leaves as leaves

        ranks = arguments.inference_args.collective_ranks
        given = given_to(arguments.kernel_input, ranks)
        given = {k.removesuffix(".must_alias_input"): v for k, v in given.items()}
        cores = int(arguments.compiler_input.logical_nc_config)
        kernel = Kernel(arguments.kernel_func, (cores,))
        target, _, _ = str(arguments.compiler_input.platform_target).partition("_")  # trn3_a0
        program = serial.transferred(trace_kernel(kernel, (), given, target=target))
        for _, node in program.walk():
            path = Path(node.source.file)
            if self.checkout in path.parents:
                self.files.add(str(path.relative_to(self.checkout)))
        rules.check(program)
        if self.trace:
            return
        arrays = [np.ascontiguousarray(a) for a in leaves(list(given.values())) if is_array(a)]
        found = [r for r in compute.execute(program, arrays) if r is not None]
        for rank in range(ranks):
            compare(arguments.validation_args, found[rank * len(found) // ranks :], rank)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: Any) -> Any:
        """Ends a test that takes too long."""
        self.files.clear()
        signal.signal(signal.SIGPROF, _too_long)
        signal.setitimer(signal.ITIMER_PROF, self.seconds)
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """Writes the result of a test where the parent reads it."""
        from accelopt.sim.errors import Unsupported

        if not self.result or (call.excinfo is None and call.when != "call"):
            return
        if call.excinfo is None:
            outcome, detail = "pass", ""
        else:
            error = call.excinfo.value
            skipped = type(error).__name__ == "Skipped"
            absent = isinstance(error, Unsupported)
            outcome = "skip" if skipped else "unsupported" if absent else "fail"
            outcome = "time" if isinstance(error, TooLong) else outcome
            outcome = "memory" if out_of_memory(error) else outcome
            detail = " ".join(f"{type(error).__name__}: {error}".split())
        record = {
            "test": item.name,
            "outcome": outcome,
            "detail": detail,
            "files": sorted(self.files),
        }
        with Path(self.result).open("a") as file:
            file.write(json.dumps(record) + "\n")


def size_of(tensors: dict[str, dict[Any, Any]]) -> int:
    """The product of all dimensions of a case."""
    sizes = [n for dims in tensors.values() for n in dims.values() if type(n) is int and n > 0]
    return math.prod(sizes)


def out_of_memory(error: BaseException | None) -> bool:
    """True for what a process is told that asks for more memory than it may have, by NumPy or by torch."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


class TooLong(BaseException):
    """A test has used up its time."""


def _too_long(*_: Any) -> None:
    raise TooLong


def is_array(value: Any) -> bool:
    """True for what becomes a tensor of the kernel."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def scales_of_nki_05() -> None:
    """The library's references round as NKI 0.3 did. Since 0.5 scales are two times larger (release
    notes of SDK 2.31; nisa.quantize_mx): the greatest exponents in them are one less."""
    from nkilib_src.nkilib.core.utils import mx_torch_common
    from test.utils import mx_utils

    less = {(15, 57344.0): (14, 57344.0), (8, 448.0): (7, 448.0), 15: 14, 8: 7}
    for function, kind in ((mx_torch_common.quantize_to_mx, tuple), (mx_utils.get_mx_max_exp, int)):
        constants = tuple(
            less.get(c, c) if type(c) is kind else c for c in function.__code__.co_consts
        )
        function.__code__ = function.__code__.replace(co_consts=constants)


if __name__ == "__main__":
    sys.exit(main())
