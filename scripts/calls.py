"""Writes docs/calls_nki.md and docs/calls_neuronxcc.md from the notes and the simulated core's signatures; --check says
whether they are stale."""

import sys
from argparse import ArgumentParser, Namespace
from itertools import groupby
from pathlib import Path

from accelopt.kernels.nki import api_notes
from accelopt.sim.dialects.dialect import DIALECTS

DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# Calls of `{package}`

Written by `scripts/calls.py`; `make check` fails when it is stale. Each name with the parameters that the simulated core takes:
destinations first in `nki`, results returned in `neuronxcc.nki`. Parameters that all calls have or hardly any kernel wants
are left out: `accelopt.kernels.nki.api_notes` lists them.
"""


def main(args: Namespace) -> None:
    for dialect in DIALECTS:
        page = DOCS / f"calls_{dialect}.md"
        parts = [HEAD.format(package={"nki": "nki"}.get(dialect, f"{dialect}.nki"))]
        entries = api_notes.entries(dialect).items()
        for room, named in groupby(sorted(entries), lambda entry: entry[0].partition(".")[0]):
            parts.append(f"## {room}\n")
            parts += [
                f"- `{name}{signature}`: {' '.join(note.split())}"
                for name, (signature, note) in named
            ]
            parts.append("")
        text = "\n".join(parts)
        if not args.check:
            page.write_text(text, encoding="utf-8")
        elif not page.is_file() or page.read_text(encoding="utf-8") != text:
            sys.exit(f"{page} is stale: run python scripts/calls.py")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    main(parser.parse_args())
