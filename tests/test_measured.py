"""The measured data travel with the package."""

import subprocess
import sys
from pathlib import Path

import pytest

from accelopt import measured


@pytest.mark.parametrize(
    ("name", "rows"), zip(measured.FILES, (14, 15, 32, 110, 96, 228), strict=True)
)
def test_every_file_can_be_read(name, rows):
    found = measured.rows(name)
    assert len(found) >= rows and all(len(row) > 3 for row in found)


def test_a_name_that_is_none_says_which_there_are():
    with pytest.raises(ValueError, match="trn1_nkibench"):
        measured.rows("trn9")


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_the_tables_of_accuracy_are_made_from_this_repository_alone(target):
    script = Path(__file__).parents[1] / "benchmarks" / "timing_accuracy.py"
    command = [sys.executable, str(script), "--target", target]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{target}, constants of the table" in said and "pairs in order" in said
    assert "model" in said.splitlines()[0]  # whose predictions these are
