"""To how many Triton kernels of other people each structural step applies.

    python benchmarks/triton_reach.py FOLDER...

Every folder is a corpus. A step applies to a kernel where a change by it is proposed and parses: alone, or
among the steps that are taken one upon the other. Steps on the host's code count once a file.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from accelopt.kernels.moves import methods_of
from accelopt.kernels.triton.moves.propose import (
    CONFIGURED,
    parses,
    variants,
    without_autotuners,
)
from accelopt.kernels.triton.moves.source import Source


def proposed(source: Source) -> set[tuple[str, str]]:
    """The steps of all that is proposed for a file, each with the kernel, or "" for the host's code."""
    found = set[tuple[str, str]]()
    for variant in (*variants(source), *without_autotuners(source)):
        words = set(re.findall(r"\w+", variant.sentence))
        names = words & source.kernels.keys() or {""}
        if parses(variant.source):
            found |= {(method, name) for method in variant.methods for name in names}
    return found


def reach(folder: Path) -> tuple[int, Counter[str]]:
    """The kernels of a corpus, and to how many of them each step applies."""
    kernels, counts = 0, Counter[str]()
    for path in sorted(folder.rglob("*.py")):
        try:
            source = Source(path.read_text())
        except (SyntaxError, ValueError):
            continue
        kernels += len(source.kernels)
        counts.update(method for method, _ in proposed(source) if source.kernels)
    return kernels, counts


def main() -> None:
    """Prints a row a step, a column a corpus."""
    folders = [Path(name) for name in sys.argv[1:]]
    if not folders:
        sys.exit(__doc__)
    found = [reach(folder) for folder in folders]
    print("| step |", " | ".join(folder.name for folder in folders), "|")
    print("|---|" + "---|" * len(folders))
    print("| kernels |", " | ".join(str(kernels) for kernels, _ in found), "|")
    for method in methods_of("triton"):
        if method != CONFIGURED:
            print(f"| {method} |", " | ".join(str(counts[method]) for _, counts in found), "|")


if __name__ == "__main__":
    main()
