"""Whether a change of the code changed what is traced or predicted: Programs, latencies and counters
of every kernel, against those that a table keeps.

    python benchmarks/replay.py [--only TEXT]               compares; ends with 1 where a row differs
    python benchmarks/replay.py [--only TEXT] --update      writes the rows: a deliberate change
    python benchmarks/replay.py FOLDER... --table FILE --exact [--update]

The first two know the kernels of this repository, the fourteen in both dialects, and the table that
its tests hold it to (figures to nine digits, as other machines and other Pythons give them, too); what
changed is then a line a kernel in the diff. The third takes the kernels that others have measured
(`timing_corpus.py` says what the FOLDERs are), to every bit: write a table before the change, compare
after it. A Program is told by the first digits of SHA-256 of its text, counters by those of their JSON.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from timing_corpus import NKIBENCH_ARGUMENTS, corpus, load, problem_of, specs

from accelopt.sim import serial, standin
from accelopt.sim.dialects import dialect as dialects
from accelopt.sim.program import Program
from accelopt.sim.timing import Compiler, profile

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "nkibench" / "golden" / "replay.csv"
DIGITS = 9
"""To how many digits the figures of the repository's own table are told."""


class Row(NamedTuple):
    """What is kept of one kernel; the latency in ms."""

    kernel: str
    target: str
    instructions: str
    latency_ms: str
    counters: str
    program: str


class Case(NamedTuple):
    """One kernel that can be traced, and the compiler that is emulated for it."""

    name: str
    program: Callable[[], Program]
    compiler: Compiler | None = None


def own() -> Iterator[Case]:
    """The baselines of this repository at full size, each for its dialect's own generation."""
    for path in sorted(ROOT.glob("NKIBench/**/kernels/*.py")):
        arguments = specs(NKIBENCH_ARGUMENTS[problem_of(path.stem)])
        traced = partial(_traced, path, arguments)
        yield Case(str(path.relative_to(ROOT).with_suffix("")), traced)


def _traced(path: Path, arguments: list[object]) -> Program:
    return dialects.trace_kernel(load(path).kernel, arguments)


def published(folders: list[Path]) -> Iterator[Case]:
    """The kernels with published timings whose sources the folders have."""
    for target in ("trn1", "trn2"):
        for one in corpus(target, folders):
            for number, program in enumerate(one.programs() if one.programs else ()):
                yield Case(
                    f"{one.family}: {one.name} {number}", partial(replace, program), one.compiler
                )


def replay(case: Case, exact: bool = False) -> Row:
    """Traces and times one kernel."""
    program = case.program()
    found = profile(program, compiler=case.compiler)
    number = repr if exact else f"{{:.{DIGITS}g}}".format
    counters = json.dumps([found.summary, asdict(found.true_counts)], sort_keys=True)
    told = json.loads(counters, parse_float=lambda text: number(float(text)))
    return Row(
        case.name,
        program.target,
        str(len(found.run.stream)),
        number(found.latency_ms),
        _digest(json.dumps(told).encode()),
        _digest(*_text_of(program)),
    )


def _text_of(program: Program) -> Iterator[bytes]:
    """The Program as it is kept, with lines of no file but the kernel's, wherever that lies; and not
    compressed, as libraries differ in how they do that."""
    file = program.source.file
    again = serial.dumps(serial.loads(serial.dumps(program), file))
    with zipfile.ZipFile(io.BytesIO(again)) as archive:
        for name in archive.namelist():
            yield archive.read(name).replace(file.encode(), b"")


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def read(table: Path) -> dict[str, Row]:
    """The rows of a table by kernel; none where there is no file."""
    if not table.exists():
        return {}
    with table.open(newline="") as file:
        return {row["kernel"]: Row(**row) for row in csv.DictReader(file)}


def write(table: Path, rows: dict[str, Row]) -> None:
    """Writes the table, by kernel."""
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows[name] for name in sorted(rows))


def differences(before: Row | None, after: Row) -> str:
    """What differs, in words; empty where nothing does."""
    if before is None:
        return "is not in the table"
    changed = [
        f"{field} {old} -> {new}"
        for field, old, new in zip(Row._fields, before, after, strict=True)
        if old != new
    ]
    return ", ".join(changed)


def main(words: list[str] | None = None) -> int:
    """Command line; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--only", default="", help="kernels whose name has this text")
    parser.add_argument("--exact", action="store_true", help="figures to every bit")
    parser.add_argument("--update", action="store_true", help="write the table")
    options = parser.parse_args(words)
    if options.folders and options.table == TABLE:
        parser.error("with FOLDERs give --table: the repository's own has none of those kernels")
    standin.install()
    kept, found = read(options.table), {}
    changed = 0
    for case in published(options.folders) if options.folders else own():
        if options.only not in case.name:
            continue
        row = found[case.name] = replay(case, options.exact)
        if words := differences(kept.get(case.name), row):
            changed += 1
            print(f"{case.name}: {words}", flush=True)
    print(f"{len(found)} kernels, {changed} differ")
    if options.update:
        write(options.table, {**kept, **found})
        return 0
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
