"""The measured data travel with the package."""

from __future__ import annotations

import pytest

from accelopt import measured


@pytest.mark.parametrize(("name", "rows"), zip(measured.FILES, (14, 15, 32, 83), strict=True))
def test_every_file_can_be_read(name, rows):
    found = measured.rows(name)
    assert len(found) >= rows
    assert all(len(row) > 3 for row in found)


def test_a_name_that_is_none_says_which_there_are():
    with pytest.raises(ValueError, match="trn1_nkibench"):
        measured.rows("trn9")
