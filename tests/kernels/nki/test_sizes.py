"""References at other sizes: what is replaced, what is not, and what cannot be."""

import pytest

from accelopt.errors import ConfigError
from accelopt.kernels.nki.sizes import at_sizes, sizes_in

TEXT = '''"""N = 3 in the docstring stays."""
N, D = 2048, 1024  # "é" before and after
WIDE: int = 4
M = 1; K = 2
SCALE = 1.5
NAMES = ("N",)


def forward(x):
    N = 5
    return x[:N]
'''


def test_only_the_numbers_of_the_top_level_change():
    made = at_sizes(TEXT, {"D": 16, "WIDE": 8, "K": 1000})
    expected = TEXT.replace("1024", "16").replace("int = 4", "int = 8").replace("K = 2", "K = 1000")
    assert made == expected
    assert at_sizes(TEXT, {"N": 1}) == TEXT.replace("2048", "1")


@pytest.mark.parametrize("name", ["X", "SCALE", "NAMES"])
def test_a_name_without_a_whole_number_is_told_with_those_there_are(name):
    with pytest.raises(ConfigError, match=f"r.py has no whole number {name} .*N, D, WIDE, M, K"):
        at_sizes(TEXT, {name: 1}, "r.py")


def test_sizes_on_the_command_line():
    assert sizes_in("N=8192") == {"N": 8192}
    assert sizes_in(" M=64 , N = 1 ") == {"M": 64, "N": 1}
    for wrong in ("", "N", "N=", "N=0", "N=-1", "N=1.5", "=4", "nowhere.py", "N=4,", "2N=4"):
        with pytest.raises(ConfigError, match="neither a file nor sizes"):
            sizes_in(wrong)
