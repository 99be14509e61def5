"""Pages name files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [f"/{file.relative_to(ROOT)}" for file in ROOT.glob("*/**/*.py")]
NAMED = re.compile(r"`([\w/]+(?:\.py|/))(?::\w+)?`")
ON_THE_CODE = ("docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md")
OTHERS = ("README.md", *(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md")))
FOLDERS = ("accelopt/", "benchmarks/", "experiments/", "scripts/", "templates/", "tests/")


@pytest.mark.parametrize("page", sorted({*ON_THE_CODE, *OTHERS}))
def test_every_file_and_folder_that_a_page_names_is_there(page):
    """Pages on the code may leave out the first folders of a path; in others a bare name may be one
    of a user's run."""
    named = NAMED.findall((ROOT / page).read_text())
    if page not in ON_THE_CODE:
        named = [name for name in named if name.startswith(FOLDERS)]
    lost = [
        name
        for name in named
        if not any(file.endswith(f"/{name}") or f"/{name}" in file for file in FILES)
        and not (ROOT / name).is_dir()
    ]
    assert not lost
