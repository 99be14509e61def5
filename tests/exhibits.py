"""The museum of hostile kernels, for tests: each is a file, or the changes that it makes to the honest
kernel of its reference (`.diff`).

The first line names the reference in `hostile/references/`, the second the verdict.
"""

import atexit
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

TEMPORARY = tempfile.gettempdir()  # tests may change it for what they start
FOLDER = Path(__file__).parent / "hostile"


def names() -> list[str]:
    """Every kernel of the museum."""
    return sorted(path.stem for path in (FOLDER / "kernels").iterdir() if path.is_file())


@cache
def header(name: str) -> dict[str, str]:
    """What the first two lines of a kernel say: its reference and its verdict."""
    lines = _written(name).read_text().splitlines()[:2]
    return dict(line.removeprefix("# ").split(": ", 1) for line in lines)


def reference_file(name: str) -> Path:
    """The reference of a kernel."""
    return FOLDER / "references" / f"{header(name)['reference']}.py"


@cache
def kernel_file(name: str) -> Path:
    """A kernel as a file: its own, or one that is written for this process."""
    written = _written(name)
    if written.suffix == ".py":
        return written
    honest = FOLDER / "kernels" / f"honest_{header(name)['reference']}.py"
    path = _folder() / f"{name}.py"
    path.write_text(changed(honest.read_text(), written.read_text()))
    return path


def changed(text: str, diff: str) -> str:
    """`text` under the comment that `diff` begins with, and with what it changes: parts that begin
    with a line `@@`, of lines that are kept (' ', or empty), taken away ('-') and put there ('+'). Those
    that are kept and taken away stand in the text once."""
    comment, *parts = diff.split("@@\n")
    text = comment + re.sub(r"\A(#.*\n)+", "", text)
    for part in parts:
        lines = [(line[0], line[1:] or line) for line in part.splitlines(keepends=True)]
        before = "".join(words for sign, words in lines if sign != "+")
        after = "".join(words for sign, words in lines if sign != "-")
        assert text.count(before) == 1, f"{text.count(before)} times in the text: {before}"
        text = text.replace(before, after)
    return text


def _written(name: str) -> Path:
    (found,) = (FOLDER / "kernels").glob(f"{name}.*")
    return found


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="hostile-kernels-", dir=TEMPORARY)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
