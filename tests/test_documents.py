"""Commands that README and docs show, on the kernel of the tutorial: each path through the product is run
once, and what differs from it in a limit or a folder alone is parsed."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from command_line import accelopt
from scripted_server import ScriptedServer

from accelopt.cli.app import COMMANDS, GROUPS, app, command

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TRACE = ROOT / "experiments" / "flb_optimize" / "starter_trace"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
# Commands that cannot be run here, and what runs them.
ELSEWHERE = {
    "make run": "tests/scripts, .ci/run",
    "make test": "this",
    "source activate": "its commands are run by this Python",
    "cd accelopt_demo": "the folder that the commands run in has its two files",
    "templates/complete_local/loop.sh": "tests/scripts/test_shell_loop.py",
    "python scripts/optimize_kernels.py": "tests/scripts/test_optimize_kernels.py: it needs a GPU",
    "accelopt python": "tests/cli/test_python.py",
    "accelopt optimize solution.json": "tests/kernels/triton and `make test-gpu`: it needs a GPU",
}
# Options that bound or place a run, and choose no other code.
LIMITS = ("--out", "-o", "--iterations", "--max-iterations", "--max-tokens")


def blocks(page, language):
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def commands():
    """Every distinct line of a shell block, without its prompt and its comment."""
    found = {}
    for page in PAGES:
        for block in blocks(page, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                command = " ".join(line.split("  #")[0].replace(".venv/bin/", "").split())
                if command and not command.startswith("#"):
                    found.setdefault(command, page.name)
    return found


def order(line):
    """A run is resumed, learned from and reported after it was made, a kernel translated after it was written."""
    later = "--resume" in line or "--findings" in line or line.startswith("accelopt translate")
    return line.startswith(("accelopt report", "accelopt db")), later, line


def path(line):
    """The code that a command takes, by its names and by the options that it is given."""
    words = shlex.split(line)
    options = {word for word in words if word.startswith("-")} - {*LIMITS}
    return *words[1 : 3 if words[1] in GROUPS else 2], *sorted(options)


LINES = [line for line in commands() if not any(line.startswith(known) for known in ELSEWHERE)]
# One line for each path, if possible one that names its folder: others continue what is there.
RUN = sorted(
    {path(line): line for line in sorted(LINES, key=lambda n: "--out" in n)}.values(), key=order
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The tutorial's kernel and reference, a Triton solution on its problem, a model that answers, and a
    run that is there to resume."""
    place = tmp_path_factory.mktemp("tutorial")
    kernel, reference = blocks(ROOT / "docs" / "tutorial.md", "python")
    (place / "kernel.py").write_text(kernel)
    (place / "reference.py").write_text(reference)
    for kind in ("definition", "solution", "workload"):
        (file,) = TRACE.rglob(f"{kind}s/**/*softmax_n8192.json*")
        shutil.copy(file, place / f"{kind}{file.suffix}")
    with ScriptedServer(lambda _: "Nothing to add.") as server:
        (place / "model.json").write_text(json.dumps({"url": server.url, "model": "m"}))
        yield place


def test_all_lines_are_commands_that_we_know():
    assert len(RUN) >= 6
    assert {shlex.split(line)[0] for line in LINES} == {"accelopt"}


@pytest.mark.parametrize("line", [line for line in LINES if line not in RUN])
def test_a_command_whose_path_another_takes_is_parsed(line):
    """Every option is one of the command's, and every value one that it takes."""
    command()
    name, *words = shlex.split(line)[1:]
    subcommand = typer.main.get_command(app).commands[name]
    assert subcommand.make_context(name, words).params


# What `--also` finds, tests/cli/test_also.py has.
SLOW = {line: pytest.param(line, marks=pytest.mark.slow) for line in RUN if "--also" in line}


@pytest.mark.parametrize("line", [SLOW.get(line, line) for line in RUN])
def test_a_command_of_the_documents(folder, line):
    words = shlex.split(line)[1:]
    if words[0] == "optimize":  # a short round, in a folder of its own
        words += [] if "--out" in words else ["--out", f"run{RUN.index(line)}"]
        words += ["--iterations", "1", "--plans", "2", "--samples", "1"]
    given = {name: value for name, value in os.environ.items() if name != "COLUMNS"}  # of readline
    done = accelopt(*words, folder=folder, environment=given)
    assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
    assert done.stdout
    assert line != "accelopt demo" or "  accelopt profile accelopt_demo/kernel.py" in done.stdout
    assert_as_shown(line, done.stdout)


def test_the_demos_kernel_is_the_tutorials():
    files = [(ROOT / "templates/demo" / name).read_text() for name in ("kernel.py", "reference.py")]
    assert files == blocks(ROOT / "docs" / "tutorial.md", "python")


def test_every_folder_stands_in_the_architectures_table():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = {name.split("/")[0] for name in re.findall(r"`([\w/]+?)(?:/|\.py)`", page)}
    folders = {path.parent.name for path in (ROOT / "accelopt").glob("*/__init__.py")}
    assert folders <= named


EXAMPLE = re.compile(r"```bash\n(accelopt [^\n]*)\n```\n```text\n(.*?)\n```", re.S)


def masked(lines):
    """Without paths, numbers and rules, which change with the machine and the model of time."""
    changing = r"[^\s:]*/[^\s:,]*|[\d.,]*\d( [KMG]iB)?|[▁▂▃▄▅▆▇█─]+"
    return [" ".join(re.sub(changing, "#", line).split()) for line in lines]


def assert_as_shown(line, printed):
    """What docs/commands.md shows of a command is what it prints, from the first line to the last one there."""
    shown = dict(EXAMPLE.findall((ROOT / "docs" / "commands.md").read_text())).get(line, "...")
    lines, now = shown.splitlines(), printed.strip("\n").splitlines()
    if lines[-1] == "...":
        lines, now = lines[:-1], now[: len(lines) - 1]
    assert masked(now) == masked(lines)


def test_every_command_has_an_example_or_a_page_with_one():
    page = (ROOT / "docs" / "commands.md").read_text()
    told = re.findall(r"^## (\w+)$", page, re.M) + re.findall(r"^\| `(\w+)` \|", page, re.M)
    assert sorted({*told} - {"Others"}) == sorted({*COMMANDS, *GROUPS})
    assert len(EXAMPLE.findall(page)) == page.count("\n## ") - 1


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")
def test_the_documentation_is_searched_as_files_without_a_network(tmp_path):
    """Evidence: a browser, which opens the pages as `make docs` says, and may ask nobody."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    site = tmp_path / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(site)]
    subprocess.run(
        build,
        cwd=ROOT,
        check=True,
        capture_output=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    asked = []
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.on("request", lambda one: asked.append(one.url) if one.url.startswith("http") else 0)
        tab.goto((site / "index.html").as_uri())
        tab.click("input.md-search__input")
        tab.keyboard.type("partition")
        tab.wait_for_selector("a.md-search-result__link")
        browser.close()
    assert asked == []
