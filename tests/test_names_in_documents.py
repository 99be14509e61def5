"""The pages on the code name files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    str(file.relative_to(ROOT)) for file in ROOT.glob("*/**/*.py") if ".venv" not in file.parts
]
NAMED = re.compile(r"`(?:accelopt/)?([\w/]+(?:\.py|/))(?::\w+)?`")


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md"])
def test_every_file_and_folder_that_a_page_names_is_there(page):
    named = NAMED.findall((ROOT / page).read_text())
    known = [f"/{file}" for file in FILES]
    lost = [
        name
        for name in named
        if not any(file.endswith(f"/{name}") or f"/{name}" in file for file in known)
        and not (ROOT / name).is_dir()
    ]
    assert named and not lost
