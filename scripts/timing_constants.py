"""Writes docs/timing_constants.md from the tables of hardware and of the compiler; --check says whether it is stale."""

import sys
from argparse import ArgumentParser, Namespace
from math import isinf
from pathlib import Path

from accelopt.hardware import TARGETS, TRN1, Hardware
from accelopt.hardware.front_ends import FRONT_ENDS
from accelopt.sim.timing.compiler_constants import COMPILERS

PAGE = Path(__file__).parents[1] / "docs" / "timing_constants.md"
HEAD = """# Constants of the timing

Written by `scripts/timing_constants.py` from `accelopt/hardware/` and `accelopt/sim/timing/compiler_constants.py`; `make check`
fails when it is stale. *documented*: the vendor says so; *measured*: follows from a published measurement without
choosing anything; *fitted*: chosen so that predictions meet the measurements that are named; *assumed*: neither.
Which documents and measurements the names mean: the first lines of `accelopt/hardware/__init__.py` and
`accelopt/measured/__init__.py`. What a constant of trn2 or trn3 has no source of its own for says *trn1*.
"""


def main(args: Namespace) -> None:
    parts = [HEAD, *map(of_generation, TARGETS.values()), of_compilers()]
    text = "\n".join(parts)
    if not args.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE} is stale: run python scripts/timing_constants.py")


def of_generation(core: Hardware) -> str:
    """One generation's section: a row for each constant."""
    rows = [
        (f"`{name}`", said(getattr(core, name)), *sourced(core, name)) for name in core.constants()
    ]
    heads = ("constant", "value", "unit", "status", "source")
    return f"## {core.name}\n\nNeuronCore-v{core.generation}, {core.calibration}.\n\n{table(heads, rows)}"


def of_compilers() -> str:
    """The bounds of every front end; the unit and source of the oldest one, and of others that differ."""
    oldest, *others = COMPILERS
    rows = []
    for name in COMPILERS[oldest].constants():
        of = COMPILERS[oldest].source(name)
        source = of.note
        for version in others:
            if (own := COMPILERS[version].source(name)) is not of:
                source += f"; {version}: {own.status}, {own.note}"
        values = [said(getattr(bounds, name)) for bounds in COMPILERS.values()]
        rows.append((f"`{name}`", *values, of.unit, of.status, source))
    releases = ", ".join(f"{version} for {one.releases}" for version, one in FRONT_ENDS.items())
    heads = ("constant", *COMPILERS, "unit", "status", "source")
    return f"## Front ends\n\n`--compiler`: {releases}.\n\n{table(heads, rows)}"


def sourced(core: Hardware, name: str) -> tuple[str, str, str]:
    """Unit, status and note; where the note is trn1's, it says so."""
    found = core.source(name)
    note = found.note if core is TRN1 or found is not TRN1.source(name) else f"*trn1:* {found.note}"
    return found.unit, found.status, note


def said(value: object) -> str:
    """A value as a cell of the table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "no limit" if isinf(value) else f"{value:.6g}"
    return str(value)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
    return "".join(f"| {line} |\n" for line in cells)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when it is stale")
    main(parser.parse_args())
