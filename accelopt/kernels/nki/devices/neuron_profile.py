"""The profiler of the Neuron SDK: run it, read its summary, have it write the whole profile.

Commands and format: `neuron-profile` user guide of SDK 2.26; `neuron-explorer` answers the same commands
from 2.29 on, where `neuron-profile` goes out of support, and writes Parquet tables ("Analyze Profile
Output", SDK 2.32), which stay when its JSON ends after 2.33.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from accelopt.errors import printable, reason
from accelopt.sandbox import remove
from accelopt.time_limits import CAPTURE_SECONDS, KILL_SECONDS, VERSION_SECONDS

EXPLORER = "neuron-explorer"
_NAMES = (EXPLORER, "neuron-profile")
_PLACE = "/opt/aws/neuron/bin"
"""Where aws-neuronx-tools puts it, which may not be on PATH ("Neuron Explorer Troubleshooting")."""
MOST_SAID = 16 << 20
"""Bytes of what a profiler prints: a summary has some thousands."""


class ProfilerError(Exception):
    """The profiler did not do what it was asked; says what it said."""


def executable() -> str | None:
    """The profiler on PATH or where its package puts it, or None."""
    places = itertools.product((None, _PLACE), _NAMES)
    return next((path for place, name in places if (path := shutil.which(name, path=place))), None)


def version(command: str, seconds: float = VERSION_SECONDS) -> str:
    """What a profiler says of its version. Raises ProfilerError where it fails or hangs."""
    said = Profiler(command, os.environ, seconds)._call("--version")
    return printable(said.strip().partition("\n")[0])[:80]


@dataclass(frozen=True)
class Profiler:
    """One profiler executable, the environment it runs in, and how long a call of it may take."""

    command: str
    environment: Mapping[str, str]
    seconds: float = CAPTURE_SECONDS

    def capture(self, neff: Path, trace: Path) -> Path:
        """Run the compiled kernel once more and trace it; the file the trace is in, none of an earlier run."""
        trace.unlink(missing_ok=True)
        self._call("capture", "-n", str(neff), "-s", str(trace))
        if not trace.is_file():
            raise ProfilerError(f"{self.command} capture wrote no {trace.name}")
        return trace

    def summarise(self, neff: Path, trace: Path) -> dict[str, float]:
        """The summary of a trace: field names of the profiler, times in seconds, percents 0 to 1."""
        text = self._call(
            "view", "--output-format", "summary-json", "-n", str(neff), "-s", str(trace)
        )
        return parse_summary(text)

    @property
    def writes_tables(self) -> bool:
        """Whether it is `neuron-explorer`, whose whole profile is a folder of Parquet tables; that of
        `neuron-profile` is a JSON file."""
        return Path(self.command).name.startswith(EXPLORER)

    def export(self, neff: Path, trace: Path, folder: Path) -> Path:
        """The whole profile of a trace in a new `folder`: that folder, or the JSON file in it."""
        remove(folder)
        folder.mkdir(parents=True, exist_ok=True)
        kind, place = (
            ("parquet", folder) if self.writes_tables else ("json", folder / "profile.json")
        )
        self._call("view", "--output-format", kind, "--output-file", str(place), "-n", str(neff),
                   "-s", str(trace))  # fmt: skip
        if not (any(folder.rglob("*.parquet")) if self.writes_tables else place.is_file()):
            raise ProfilerError(f"{self.command} view left no profile in {folder}")
        return place

    def _call(self, *arguments: str) -> str:
        asked = f"{self.command} {arguments[0]}"
        try:
            process = subprocess.Popen(
                [self.command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environment),
                start_new_session=True,
            )
        except OSError as error:
            raise ProfilerError(f"{asked}: {reason(error)}") from error
        assert process.stdout is not None and process.stderr is not None
        said, wrong = (_Last(pipe) for pipe in (process.stdout, process.stderr))
        try:
            process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            raise ProfilerError(f"{asked} took longer than {self.seconds:g} s") from None
        finally:  # with whatever it started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            texts = said.text(), wrong.text()
        if process.returncode != 0:
            last = " ".join(printable(texts[1] or texts[0]).split())[-300:]
            raise ProfilerError(f"{asked} ended with exit code {process.returncode}: {last}")
        return texts[0]


class _Last:
    """The last of what comes out of a pipe, read as it comes, so that nobody waits for it to be read."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._held = pipe, bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe as pipe:
            while part := pipe.read1(1 << 16):  # type: ignore[attr-defined]
                self._held += part
                if len(self._held) > 2 * MOST_SAID:
                    del self._held[:-MOST_SAID]

    def text(self) -> str:
        """All of it, or its end; what is no UTF-8 is replaced. Who left its session may hold the pipe."""
        self._thread.join(KILL_SECONDS)
        return bytes(self._held[-MOST_SAID:]).decode(errors="replace")


def parse_summary(text: str) -> dict[str, float]:
    """The numbers of a summary-json document: one object under the profile's id.

    Log lines before the document are skipped. Raises ProfilerError when there is no positive
    `total_time`.
    """
    try:
        document = json.loads(text[text.index("{") :])
        numbers = numbers_of(next(iter(document.values())))
    except (ValueError, StopIteration, AttributeError, RecursionError) as error:
        raise ProfilerError(f"the profiler's summary cannot be read: {text[:200]!r}") from error
    total = numbers.get("total_time", math.nan)
    if not (math.isfinite(total) and total > 0):
        raise ProfilerError(f"the profiler's summary has no positive total_time: {total}")
    return numbers


def numbers_of(summary: Mapping[str, object]) -> dict[str, float]:
    """The fields of a summary that are numbers."""
    return {
        name: float(value)
        for name, value in summary.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
