"""Write docs/commands.md and docs/slow.md with what the commands print on the demo's kernel, and the figures."""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SHOWN = 16  # lines of an answer
OWN = "kernel.py --reference reference.py"
COMMANDS = {  # name: what it is for, the command, what to do next
    "demo": (
        "A first improvement, on a kernel that comes along.",
        "demo",
        "Try `profile` and `optimize` on a kernel of your own.",
    ),
    "check": (
        "Is the kernel right, and what rules does it break?",
        f"check {OWN}",
        "Mend each line that is not ok; the exit status is 1 until all are.",
    ),
    "explain": (
        "What does it compute, and in which loops and tiles?",
        f"explain {OWN}",
        "Compare the loops with what you meant; what is read again is a chance.",
    ),
    "profile": (
        "What does it cost, and what would make it faster?",
        f"profile {OWN}",
        "Carry out the first line of advice: [My kernel is slow](slow.md).",
    ),
    "timeline": (
        "When does each engine work?",
        f"timeline {OWN} -o trace.json",
        "Open it in Perfetto and look for gaps.",
    ),
    "optimize": (
        "Make it faster.",
        f"optimize {OWN} --out run",
        "Read `run/kernel/best.diff`, apply it with `patch`, keep `run/report.html`.",
    ),
    "report": (
        "What did a run try?",
        "report run",
        "Open it; what failed has its diff and its reason.",
    ),
    "write": (
        "A kernel from the NumPy reference alone.",
        "write reference.py -o written.py",
        "`check` it, and `profile` it.",
    ),
    "translate": (
        "The kernel in the other dialect of NKI.",
        f"translate {OWN} --to neuronxcc -o old.py",
        "`check` the translation for its own target.",
    ),
    "tune": (
        "The best values of a kernel's knobs.",
        f"tune {OWN}",
        "Merge `best.py` of the folder that it names.",
    ),
    "serve": (
        "A folder and tools for a coding agent.",
        f"serve --init bench {OWN}",
        "Open the folder with [your agent](coding_agents.md).",
    ),
    "doctor": (
        "What does a run need, and what is missing?",
        f"doctor {OWN}",
        "Mend the first line that says TO DO.",
    ),
    "peak": (
        "How far are NKIBench's baselines from the bound?",
        "peak",
        "`run --problems NAME` makes one faster.",
    ),
    "cache": (
        "Where are inputs and reference outputs kept?",
        "cache",
        "`cache --limit 2` bounds them, `cache --clear` removes them.",
    ),
}
ELSEWHERE = {
    "run": ("several problems of NKIBench", "index.md"), "calibrate": ("the simulated core's constants from a machine", "timing.md"),
    "fsm": ("two state machines", "fsm.md"), "db": ("what many runs found", "machines.md"),
    "compare": ("a real core's profile beside the predicted one", "devices.md"),
    "export": ("the kernel as an operation of PyTorch or JAX", "devices.md"),
    "python": ("a script or tests on the simulated core", "python.md"),
    "ptx": ("what a compiled GPU kernel moves and computes", "ptx.md"),
}  # fmt: skip
MADE = "<!-- made by scripts/example_pages.py -->\n"


def said(words: str, folder: Path) -> str:
    """What a command prints, without the machine's folders."""
    command = [sys.executable, "-m", "accelopt", *shlex.split(words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    text = done.stdout.replace(str(folder), "~").replace(str(Path.home()), "~")
    return "\n".join(line.rstrip() for line in text.splitlines())


def block(words: str, text: str) -> str:
    """A command, and the beginning of what it prints."""
    lines = text.strip("\n").splitlines()
    more = "\n..." if len(lines) > SHOWN else ""
    return (
        f"```bash\naccelopt {words}\n```\n```text\n" + "\n".join(lines[:SHOWN]) + f"{more}\n```\n"
    )


def commands_page(answers: dict[str, str]) -> str:
    """Each command: what for, what it prints, what to do next."""
    parts = [
        f"{MADE}# Each command by example\n\nOn the kernel of [the tutorial](tutorial.md), which `accelopt demo` leaves in a folder, too.\n"
    ]
    for name, (purpose, words, then) in COMMANDS.items():
        parts.append(f"## {name}\n\n{purpose}\n\n{block(words, answers[name])}\n{then}\n")
    rows = "\n".join(
        f"| `{name}` | {what} | [there]({page}) |" for name, (what, page) in ELSEWHERE.items()
    )
    return "\n".join([*parts, f"## Others\n\n| command | for | example |\n|---|---|---|\n{rows}\n"])


def slow_page(profile: str, applied: str, gain: str) -> str:
    """From a profile to an edit, with the figures of before and after."""
    advice = profile[profile.index("What to change first") :].split("\n\n")[0]
    head = profile.split("\n\n")[0]
    return MADE + textwrap.dedent("""\
        # My kernel is slow

        Four steps, on the kernel of [the tutorial](tutorial.md).

        ## 1. Ask what it costs

        ```bash
        accelopt profile kernel.py --reference reference.py
        ```
        ```text
        {head}

        {advice}
        ```

        The list is the answer: what to change, at which line, what it gives. The first line that you believe is the edit
        to make. Everything below it in the output is the account; [Reading a profile](profile.md) explains it.

        ## 2. Look at the engines

        ![engines before](assets/engines_before.svg)

        A row that is full limits the kernel: give it less to do. Rows that are full in turns wait for each other: let
        the next tile begin before this one ends (more buffers, several tiles an iteration). All rows nearly empty are
        fixed costs of many small instructions: make tiles wider. Here DMA moves 512 B at a time, and everything waits.

        ## 3. Make the edit

        ```bash
        accelopt optimize kernel.py --reference reference.py --apply 1
        ```
        ```text
        {applied}
        ```

        Where a rewrite is known it is written, judged and shown as a diff. Where none is, the lines to edit are
        shown; after the edit `check` says whether the kernel is still right, and `profile` what it gave.

        ## 4. Or let a search make all of them

        ```bash
        accelopt optimize kernel.py --reference reference.py --out run
        ```

        Here it is {gain}. What it has become:

        ![engines after](assets/engines_after.svg)

        ![best so far](assets/evaluations.svg)
        """).format(head=head, advice=advice, applied=applied, gain=gain)


def main() -> None:
    """Runs every command in a folder of its own, and writes pages and figures."""
    from accelopt.report.figures import STYLE, drawn
    from accelopt.report.story import read_story

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("kernel.py", "reference.py"):
            shutil.copy(ROOT / "templates" / "demo" / file, folder / file)
        answers = {name: said(words, folder) for name, (_, words, _) in COMMANDS.items()}
        applied = said(f"optimize {OWN} --apply 1", folder)
        [problem] = read_story(folder / "run").problems
    figures = drawn([problem], ["run"])
    for figure in ("engines before", "engines after", "evaluations"):
        text = re.sub("(<svg[^>]*>)", lambda head: head[1] + STYLE, figures[figure], count=1)
        (DOCS / "assets" / f"{figure.replace(' ', '_')}.svg").write_text(text + "\n")
    gain = f"{problem.baseline:.4g} ms before and {problem.best:.4g} ms after, {problem.speedup:.2f} times as fast"
    beginning = "\n".join(applied.splitlines()[:SHOWN]) + "\n..."
    (DOCS / "slow.md").write_text(slow_page(answers["profile"], beginning, gain))
    (DOCS / "commands.md").write_text(commands_page(answers))


if __name__ == "__main__":
    main()
