"""Making the folder of a bench, and opening the bench on it.

What decides verdicts lies elsewhere, in the user's state folder: the kernel and the reference as they
were when the folder was made, and what was accepted. Whoever works in the folder changes copies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import platformdirs

from accelopt.agents.experience_text import lessons_text
from accelopt.agents.prompts import quote_words
from accelopt.bench.bench import Bench
from accelopt.bench.folder import BenchFolder
from accelopt.caches import locked
from accelopt.errors import ConfigError
from accelopt.evaluation import Case
from accelopt.experience import Finding
from accelopt.kernels.nki.devices.kernel_folder import kernel_folder
from accelopt.nodes import Node
from accelopt.script_file_columns import Experience
from accelopt.stages.config import Config, Options
from accelopt.stages.workshop import open_workshop
from accelopt.store import content_key, read_text, write_atomically, write_json

CASE, RECORD, SESSIONS, HELD = "case.json", "accepted.jsonl", "sessions", ".lock"
KEPT = ("target", "compiler", "lnc", "rel_tol", "precision", "database", "workers",
        "machine")  # fmt: skip
"""The options that a folder is made with."""
GUIDE = Path(__file__).with_name("guide.md")
SKILL = """---
name: accelopt
description: Make an NKI kernel for AWS Trainium faster with the accelopt tools (check, profile, what_if, \
schedules, submit), without a device. Use in a folder that has kernel.py, reference.py and machine.md.
---

"""


class MadeFolder(NamedTuple):
    """A folder's case and the options that it was made with; `state` is where verdicts come from."""

    case: Case
    options: Options
    state: Path


def state_of(folder: Path) -> Path:
    """Where a folder's state lies, for this user."""
    root = platformdirs.user_state_path("accelopt", appauthor=False)
    return root / "benches" / content_key(str(folder.resolve()))


def make_folder(folder: Path, case: Case, options: Options) -> MadeFolder:
    """Keeps a case as the one of `folder`, and writes what says how to work there. Raises ConfigError
    for a folder that holds something else."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; choose another folder, or empty it first")
    folder.mkdir(parents=True, exist_ok=True)
    state = state_of(folder)
    shutil.rmtree(state, ignore_errors=True)
    kernel, place = Path(case.kernel), state / "case"
    source = read_text(kernel)
    for name, text in kernel_folder(kernel).beside.items():
        write_atomically(place / name, text)
    write_atomically(place / kernel.name, source)
    write_atomically(place / "reference" / Path(case.task).name, read_text(case.task))
    kept = {name: getattr(options, name) for name in KEPT}
    kept["machine"] = str(options.machine.absolute()) if options.machine else None
    write_json(state / CASE, {"kernel": kernel.name, "reference": Path(case.task).name, **kept})
    guide = GUIDE.read_text()
    write_atomically(folder / "AGENTS.md", guide)
    write_atomically(folder / "skills" / "accelopt" / "SKILL.md", SKILL + guide)
    # -P: clients start it in the folder, from whose files no module is to be imported.
    arguments = ["-P", "-m", "accelopt", "serve", str(folder.resolve())]
    server = {"accelopt": {"command": sys.executable, "args": arguments}}
    write_json(folder / ".mcp.json", {"mcpServers": server})  # read by editors and terminal agents
    return read_folder(folder)


def read_folder(folder: Path) -> MadeFolder:
    """What `make_folder` kept. Raises ConfigError for a folder that it did not make."""
    state = state_of(folder)
    if not (folder.is_dir() and (state / CASE).is_file()):
        raise ConfigError(
            f"{folder} is no folder of a bench on this machine; make one with: "
            "accelopt serve --init FOLDER KERNEL --reference REFERENCE"
        )
    kept = json.loads(read_text(state / CASE))
    kernel = state / "case" / kept.pop("kernel")
    reference = state / "case" / "reference" / kept.pop("reference")
    case = Case(
        service_name=f"{kernel.stem}_ID0",
        case_name=kernel.stem,
        problem=kernel.stem,
        values={},
        task=str(reference),
        kernel=str(kernel),
    )
    return MadeFolder(case, Options().replaced(**kept), state)


@contextlib.contextmanager
def session_folder(state: Path) -> Iterator[Path]:
    """A folder for one process's run, gone when it ends; those of processes that were killed go too."""
    root = state / SESSIONS
    with contextlib.ExitStack() as held:
        with locked(state / "sessions.lock"):
            for old in root.iterdir() if root.is_dir() else ():
                with contextlib.suppress(OSError), (old / HELD).open("a") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(old, ignore_errors=True)
            root.mkdir(exist_ok=True)
            made = tempfile.TemporaryDirectory(dir=root, ignore_cleanup_errors=True)
            place = Path(held.enter_context(made))
            fcntl.flock(held.enter_context((place / HELD).open("a")), fcntl.LOCK_EX)
        yield place


@asynccontextmanager
async def open_bench(folder: Path, made: MadeFolder, config: Config) -> AsyncIterator[Bench]:
    """The bench on a folder, with the start judged and its files written. `config.out` takes what this
    process works with. Raises ConfigError for a start that is not right."""
    async with open_workshop(config.out, config.workshop) as workshop:
        language, case = workshop.language, made.case
        source = language.complete(language.source(case))
        verdict = await workshop.evaluations.evaluate(case, source)
        if verdict.profile is None:
            raise ConfigError(f"there is nothing to start from: {verdict.message}")
        start = Node(case, source, verdict)
        workshop.archive.begin(start, language)
        warm = await workshop.archive.warm_start(start, workshop.evaluations)
        known = learned_elsewhere(warm.findings, warm.experiences)
        bench = Bench(BenchFolder(folder), start, workshop, known=known, record=made.state / RECORD)
        bench.fill()
        yield bench


def learned_elsewhere(
    findings: Sequence[Finding], experiences: Sequence[Experience]
) -> tuple[str, ...]:
    """What other runs found out, a line each, somebody else's words quoted."""
    told = lessons_text((), findings).splitlines() if findings else []
    told += [
        f"- {one.speedup:.2f} times as fast: {quote_words(one.summary, 300)}"
        for one in experiences
        if one.summary
    ]
    return tuple(told)
