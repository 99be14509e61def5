"""What the scripts share: options that all of them take, and errors as one sentence."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from accelopt.agents.configuration import ModelConfig, load_model_config
from accelopt.agents.prompts import read_names
from accelopt.agents.roles import ModelRole
from accelopt.errors import AcceloptError, sentence
from accelopt.evaluation import Scrutiny
from accelopt.hardware import TARGETS
from accelopt.hardware.front_ends import FRONT_ENDS
from accelopt.interruption import end_in_good_order, end_with_ancestors, stop
from accelopt.kernels.language import LANGUAGES
from accelopt.sandbox import sweep
from accelopt.stages.config import Options
from accelopt.stages.workshop import Workshop, open_workshop
from accelopt.store import write_atomically

MOST_WORKERS = 1024  # of one machine
LOOP_PROCESS = "ACCELOPT_LOOP_PROCESS"
"""The variable in which a shell loop says its process's number: its scripts end with it."""

_Number = TypeVar("_Number", int, float)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a script's work. What the user can mend ends in one sentence and exit status 1."""
    end_in_good_order()
    try:
        loop = environment().get(LOOP_PROCESS, "")
        if loop.isdecimal():
            end_with_ancestors(int(loop))
        for folder in (None, "/dev/shm"):
            sweep(folder)
        asyncio.run(work)
    except (AcceloptError, OSError) as error:
        sys.exit(f"error: {sentence(error)}")
    except KeyboardInterrupt:
        stop("interrupted; the same command continues where this one stopped")


def add_backend_options(parser: ArgumentParser) -> None:
    """Options of every script that evaluates or describes kernels."""
    parser.add_argument("--backend", default="nki", help=f"by default nki; {', '.join(LANGUAGES)}")
    parser.add_argument("--target", default="trn1", help=f"by default trn1; {', '.join(TARGETS)}")
    parser.add_argument("--compiler", default="", help=f"front end: {', '.join(FRONT_ENDS)}")
    parser.add_argument("--workers", type=workers, default=0, help="evaluations at a time; 0: CPUs")
    parser.add_argument("--traceset_root", type=Path, default=None)


def add_model_options(parser: ArgumentParser) -> None:
    """Options of every script that may call a model."""
    parser.add_argument("--model_config_path", type=Path, required=True)
    parser.add_argument("--logfire", action="store_true", help="trace model calls with logfire")
    limit = "stop in good order there; the stages of one --exp_dir count together"
    parser.add_argument("--max_tokens", type=whole, default=None, help=limit)
    parser.add_argument("--max_dollars", type=positive, default=None, help=limit)
    parser.add_argument("--replay", type=Path, help="answer from this folder's journal, no model")


def count(text: str) -> int:
    """An option's whole number of 1 or more."""
    return _number(text, int, 1, "a whole number of 1 or more")


def whole(text: str) -> int:
    """An option's whole number of 0 or more."""
    return _number(text, int, 0, "a whole number of 0 or more")


def workers(text: str) -> int:
    """An option's number of workers: 0, or as many as make sense on a machine."""
    return _number(text, int, 0, f"a whole number from 0 to {MOST_WORKERS}", MOST_WORKERS)


def positive(text: str) -> float:
    """An option's finite number above 0."""
    return _number(text, float, math.ulp(0.0), "a number above 0")


def output_file(text: str) -> Path:
    """An option's path of a file to be written: known to be possible before the work begins."""
    path = Path(text)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder, not a file to write")
    if not folder.is_dir():
        raise ArgumentTypeError(f"{text} cannot be written: {folder} is no folder")
    if not os.access(folder, os.W_OK):
        raise ArgumentTypeError(f"{text} cannot be written: {folder} may not be written to")
    return path


def _number(
    text: str, kind: type[_Number], least: float, wanted: str, most: float = math.inf
) -> _Number:
    try:
        value = kind(text)
    except ValueError:
        value = kind(-1)
    if not least <= value <= most or value == math.inf:
        raise ArgumentTypeError(f"{text!r} is not {wanted}")
    return value


def workshop(
    args: Namespace, folder: Path, screening: Scrutiny = Scrutiny.FULL
) -> AbstractAsyncContextManager[Workshop]:
    """A workshop in `folder` as the parsed arguments ask for it; evaluated sources go under it."""
    given, fields = vars(args), getattr(args, "save_fields_path", None)
    options = Options(
        **{name: given[name] for name in Options._fields if name in given},
        save_fields=tuple(read_names(Path(fields))) if fields else (),
        spent_in=tuple(path for path in folder.parent.glob("*/") if _is_run(path, folder)),
        screening=screening,
    )
    core = given.get("nc_id")
    return open_workshop(
        folder, options.config(folder, folder, () if core is None else (core,)).workshop
    )


def _is_run(path: Path, own: Path) -> bool:
    return path != own and (path / "journal.jsonl").is_file()


def model_config(args: Namespace, role: ModelRole) -> ModelConfig:
    """The configuration of `role`, its key taken from the environment where the file says so."""
    return load_model_config(args.model_config_path, role, environment())


def environment() -> Mapping[str, str]:
    """The process's environment; scripts hand on what is needed of it."""
    return os.environ


def timestamp() -> str:
    """Now in UTC, in the form of the published time files."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def write_times(folder: Path, stem: str, started: str, ended: str) -> None:
    """`{stem}_start_end_time.txt`, one line with both times."""
    write_atomically(folder / f"{stem}_start_end_time.txt", f"{started},{ended}")


def say(sentence: str) -> None:
    """A line for the person at the terminal."""
    print(sentence, file=sys.stderr, flush=True)
