"""Both machines as a picture, drawn from the transitions that they declare."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.fsm import states as manager
from accelopt.fsm.engine import TERMINAL, Transitions
from accelopt.fsm.worker import states as worker
from accelopt.store import write_atomically
from accelopt.time_limits import DIAGRAM_SECONDS

MACHINES: Mapping[str, tuple[str, Transitions]] = {
    "manager": (manager.INITIAL, manager.TRANSITIONS),
    "worker": (worker.INITIAL, worker.TRANSITIONS),
}
GRAPHVIZ = "dot"


def mermaid() -> str:
    """Both machines as text for Mermaid, which GitHub, MkDocs and many editors draw."""
    lines = ["stateDiagram-v2"]
    for name, (initial, transitions) in MACHINES.items():
        lines += [f"    state {name} {{", f"        [*] --> {initial}"]
        lines += [f"        {state} --> {to}" for state, to in _edges(transitions, "[*]")]
        lines += ["    }"]
    return "\n".join(lines) + "\n"


def dot() -> str:
    """Both machines as text for Graphviz."""
    lines = ["digraph machines {", "  node [shape=box, style=rounded, fontname=sans];"]
    for name, (initial, transitions) in MACHINES.items():
        end = f"{name} ends"
        lines += [f"  subgraph cluster_{name} {{", f'    label="{name}";']
        lines += [f'    "{name}" [shape=point]; "{name}" -> "{initial}";']
        lines += [f'    "{end}" [shape=doublecircle, label=""];']
        lines += [f'    "{state}" -> "{to}";' for state, to in _edges(transitions, end)]
        lines += ["  }"]
    return "\n".join([*lines, "}"]) + "\n"


def write_diagram(path: Path) -> Path:
    """The picture at `path`, in the format of its ending (svg, png, pdf), where Graphviz is installed;
    else, and for `.mmd`, Mermaid text beside it. Returns what was written.

    Raises ConfigError where Graphviz refuses the format.
    """
    program = shutil.which(GRAPHVIZ)
    if program is None or path.suffix == ".mmd":
        text = path.with_suffix(".mmd")
        write_atomically(text, mermaid())
        return text
    command = [program, f"-T{path.suffix.removeprefix('.') or 'svg'}"]
    done = subprocess.run(
        command, input=dot().encode(), capture_output=True, timeout=DIAGRAM_SECONDS
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ConfigError(f"Graphviz cannot draw {path}: {said[0] if said else 'no reason given'}")
    write_atomically(path, done.stdout)
    return path


def _edges(transitions: Transitions, end: str) -> Iterator[tuple[str, str]]:
    for state, following in transitions.items():
        for name in following:
            yield state, end if name == TERMINAL else name
