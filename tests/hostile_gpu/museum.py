"""Solutions that try to win dishonestly or do harm, each a few lines; none may be judged correct. And
unusual ones that are honest, in `honest/`: none of them may be refused.

Each file in `solutions/` begins with three comment lines: what it tries, the definition it claims
to solve, and the verdicts that are right for it. A `.diff` says what it changes in the plain solution
of its definition, in `plain/`, of the starter set or in `trace/`. `(gpu)` in a verdict marks those that need a real GPU to do their mischief;
the others are judged through the Triton interpreter as well.
"""

import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from exhibits import changed

from accelopt.kernels.gpu.bench.files.tracefiles import Solution, TraceFolder

FOLDER = Path(__file__).parent / "solutions"
HONEST = Path(__file__).parent / "honest"
STARTER = Path(__file__).parents[2] / "experiments" / "flb_optimize" / "starter" / "solutions"
PLAIN = (Path(__file__).parent / "plain", STARTER)
FOLDERS = (
    TraceFolder(STARTER.parents[1] / "starter_trace"),
    TraceFolder(Path(__file__).parent / "trace"),
)


def problem(definition: str) -> TraceFolder:
    """The folder that has a definition and its workloads: the starter set, or `trace/` beside this file."""
    return next(folder for folder in FOLDERS if definition in folder.definitions)


class Exhibit(NamedTuple):
    """One solution and the verdicts that are right for it."""

    name: str
    deceit: str
    definition: str
    verdicts: tuple[str, ...]
    needs_gpu: bool
    source: str

    def solution(self) -> Solution:
        """The source in the place of the definition's plain solution."""
        plain = problem(self.definition).solutions_of(self.definition)[0]
        return plain.with_source(self.source, f"hostile_{self.name}")


def exhibits() -> list[Exhibit]:
    """All of them, by name."""
    return [_read(path) for path in sorted(FOLDER.iterdir()) if path.is_file()]


def honest() -> list[Exhibit]:
    """The sound ones, by name."""
    return [_read(path) for path in sorted(HONEST.iterdir()) if path.is_file()]


def _plain(definition: str) -> str:
    for folder in PLAIN:
        if (path := folder / f"{definition}.py").is_file():
            return path.read_text()
    return problem(definition).solutions_of(definition)[0].main_source


def _read(path: Path) -> Exhibit:
    text = path.read_text()
    header = dict(
        line.removeprefix("# ").split(": ", 1) for line in text.splitlines()[:3] if ": " in line
    )
    if path.suffix == ".diff":
        text = changed(_plain(header["claims"]), text)
    verdict = header.get("verdict", "correct")
    return Exhibit(
        name=path.stem,
        deceit=header.get("tries", header.get("does", "")),
        definition=header["claims"],
        verdicts=tuple(word.strip() for word in verdict.replace("(gpu)", "").split(" or ")),
        needs_gpu="(gpu)" in verdict,
        source=text,
    )
