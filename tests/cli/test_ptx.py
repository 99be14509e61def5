"""`accelopt ptx` on PTX that is hard to read, on a narrow terminal, and on what is no PTX."""

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from accelopt.cli import app

PTX = Path(__file__).parents[1] / "ptx"
NASTY = str(PTX / "nasty.ptx")


@pytest.fixture(scope="module")
def call():
    app.command()
    return lambda *words: CliRunner().invoke(app.app, ["ptx", *map(str, words)])


def test_every_kernel_in_eighty_columns(call, tmp_path: Path) -> None:
    for path in [*sorted((PTX / "corpus").glob("*_sm90_w4_s2.ptx.gz")), None]:
        file = tmp_path / "kernel.ptx"
        file.write_bytes(
            gzip.decompress(path.read_bytes()) if path else (PTX / "nasty.ptx").read_bytes()
        )
        said: Result = call(file)
        assert said.exit_code == 0
        assert max(map(len, said.output.splitlines())) <= 80


def test_what_is_said_of_a_kernel(call) -> None:
    said = call(NASTY, "--kernel", "third").output
    assert "third for sm_90a, at most 128 threads" in said
    assert "Copies that nothing waits for: lines 53, 53." in said
    assert "only waits" in said
    spills = call(NASTY, "--kernel", "first").output
    assert "The threads' own memory: 512 bytes read and written, lines 30, 38." in spills
    assert "4 trips" in spills and "16 trips" in spills
    assert "of one thread" in call(NASTY, "--kernel", "second").output
    assert "96 threads" in call(NASTY, "--kernel", "second", "--warps", 3).output


def test_json_and_drawings(call) -> None:
    every = json.loads(call(NASTY, "--json").output)
    assert [one["metadata"]["kernel_name"] for one in every] == ["first", "second", "third"]
    one = json.loads(call(NASTY, "--json", "--kernel", "first").output)
    assert len(one["regions"]) == one["metadata"]["counts"]["num_regions"]
    region = json.loads(call(NASTY, "--kernel", "first", "--region", "4").output)
    assert region["ptx_snippet"][0].startswith("@p ld.global.nc")
    assert json.loads(call(NASTY, "--kernel", "first", "--stage", "1").output)["stage_id"] == 1


def test_the_ptx_of_a_line_of_the_source(call) -> None:
    said = call(NASTY, "--line", 99).output.splitlines()
    assert said[0] == "in lined.h, line 99: 11 instructions"
    assert "@!p st.local.u32 [mine+4], i;" in said[1]
    assert max(map(len, said)) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([NASTY, "--kernel", "none"], "there are twice, first, second, third"),
        ([NASTY, "--stage", "0"], "--kernel says which"),
        ([NASTY, "--stage", "0", "--json"], "one at a time"),
        ([NASTY, "--line", "98"], "those with any are 10 to 99"),
        ([NASTY, "--kernel", "first", "--region", "99"], "regions go from 0 to 31"),
        ([NASTY, "--kernel", "first", "--stage", "9"], "stages go from 0 to 1"),
        ([__file__], "is not PTX"),
        ([PTX / "corpus" / "add_sm80_w4_s2.ptx.gz"], "is not PTX"),
        ([PTX / "nowhere"], "is not a file"),
    ],
)
def test_what_is_wrong_is_one_sentence(call, words: list[str], said: str) -> None:
    found = call(*words)
    assert found.exit_code == 1
    assert said in str(found.exception) and "\n" not in str(found.exception)
