"""What is read of PTX that Triton made of our own kernels, against counts that know no PTX."""

import gzip
import json
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

from accelopt.ptx import region_views
from accelopt.ptx.phases import (
    ASYNC_COPY,
    BARRIER,
    COMPUTE,
    GLOBAL_STORE,
    SHARED_LOAD,
    SHARED_STORE,
)  # fmt: skip
from accelopt.ptx.region_changes import touched
from accelopt.ptx.regions import RegionDag, analyse, analyse_function
from accelopt.ptx.statements import by_source, read
from accelopt.ptx.work_counts import Work

CORPUS = Path(__file__).parent / "corpus"
EVERY = sorted(path.name.removesuffix(".ptx.gz") for path in CORPUS.glob("*.ptx.gz"))
CUDA = [name for name in EVERY if name.startswith("cuda")]
FILES = [name for name in EVERY if name not in CUDA]
KERNELS = ("add", "attention", "histogram", "matmul", "reduction", "softmax")


@cache
def text_of(name: str) -> str:
    return gzip.decompress((CORPUS / f"{name}.ptx.gz").read_bytes()).decode()


@cache
def dag_of(name: str) -> RegionDag:
    return analyse(text_of(name))


@cache
def bare(text: str) -> str:
    """`text` with blanks for comments and strings, letter by letter."""
    kept, at, inside = [], 0, ""
    while at < len(text):
        two = text[at : at + 2]
        if not inside and two in ("//", "/*"):
            inside, at = two, at + 2
        elif inside == "//" and text[at] == "\n":
            inside = ""
        elif inside == "/*" and two == "*/":
            inside, at = "", at + 2
        elif inside == '"' and text[at] == "\\":
            at += 2
        elif text[at] == '"' and inside in ("", '"'):
            inside, at = ("" if inside else '"'), at + 1
        else:
            kept.append(" " if inside and text[at] != "\n" else text[at])
            at += 1
    return "".join(kept)


def opcodes(text: str) -> list[str]:
    """The first word of what stands between semicolons, by splitting the text."""
    body = re.sub(r"^\s*\.(loc|file|section)\b[^\n]*", "", bare(text), flags=re.MULTILINE)
    body = re.sub(r"^\s*[\w$]+:(?!:)", "", body, flags=re.MULTILINE)
    pieces = (
        piece.strip(" \t\n{}")
        for piece in body[re.search(r"\)[^;(){}]*\{", body).end() :].split(";")
    )
    words = (re.sub(r"^@!?[%\w]+\s+", "", piece).split() for piece in pieces)
    return [word[0] for word in words if word and not word[0].startswith(".")]


def test_the_corpus_is_whole() -> None:
    assert {name.split("_sm")[0] for name in FILES} == set(KERNELS)
    assert {name.split("_")[1] for name in FILES} == {"sm80", "sm90", "sm100"}
    assert CUDA == ["cuda_sm100a", "cuda_sm80", "cuda_sm90a", "cuda_sm90a_debug"]


@pytest.mark.parametrize("name", FILES)
def test_no_statement_is_lost(name: str) -> None:
    text = text_of(name)
    module = read(text)
    parts = [one.statements + one.declarations for one in module.functions]
    assert len(module.declarations) + sum(map(len, parts)) == bare(text).count(";")
    dag = dag_of(name)
    assert [one.name for one in dag.function.statements] == opcodes(text)
    in_regions = [one for region in dag.regions for one in region.statements]
    assert in_regions == list(dag.function.statements)
    assert dag.unknown == ()


@pytest.mark.parametrize("name", CUDA)
def test_no_statement_of_several_functions_is_lost(name: str) -> None:
    text = text_of(name)
    module = read(text)
    parts = [one.statements + one.declarations for one in module.functions]
    assert len(module.declarations) + sum(map(len, parts)) == bare(text).count(";")
    found = [one.name for function in module.functions for one in function.statements]
    assert found == opcodes(text)
    for function in module.functions:
        dag = analyse_function(function, module)
        in_regions = [one for region in dag.regions for one in region.statements]
        assert in_regions == list(function.statements)
        assert dag.unknown == ()
    headers = re.findall(r"\.(entry|func)[^;{]*\{", bare(text))
    assert len(headers) == len(module.functions)
    assert headers.count("entry") == len(module.kernels)


@pytest.mark.parametrize("name", [name for name in CUDA if "debug" not in name])
def test_kernels_of_nvcc(name: str) -> None:
    """By what the sources say: 256 threads that move two float4 and add four; nine cases that store; 12
    trips on an array of the thread's own; 24 trips of two tiles of 256 halves and one product of 16."""
    text = text_of(name)
    work = analyse(text, "add4").work
    assert (work.global_read_bytes, work.global_write_bytes) == (2 * 16 * 256, 16 * 256)
    assert (work.flops, work.generic) == (4 * 256, 0)
    choose = analyse(text, "choose")
    assert choose.work.global_write_bytes == 128 * 4 * (9 + 1)
    own = analyse(text, "own_memory")
    assert len(own.spills) >= 3 and [one.loop.trips for one in own.loops] == [12]
    staged = analyse(text, "staged")
    (loop,) = staged.loops
    assert loop.loop.trips == 24
    assert (loop.work.global_read_bytes, loop.work.flops) == (2 * 512, 2 * 16**3)
    assert loop.work.shared_read_bytes == loop.work.shared_write_bytes == 2 * 512
    assert staged.total is not None and staged.total.flops == 24 * 2 * 16**3
    assert staged.copies == staged.copies._replace(unawaited=(), idle=())
    whole = analyse(text, "calls", warps=4)
    assert whole.threads == 128 and whole.work.flops == 128 * 2 * 5
    assert whole.work.unknown_flops == 1  # vprintf
    assert analyse(text, "total").work.atomic_ops == 256


def test_a_producer_and_its_consumers() -> None:
    """Tensor copies that one warp issues and four others wait for; a product of 64 x 8 x 16."""
    dag = analyse(text_of("cuda_sm90a"), "warpgroups")
    assert dag.copies.unawaited == () and dag.copies.idle == ()
    products = [one for one in dag.regions if one.statements[0].name.startswith("wgmma.mma_async")]
    assert {one.work.flops for one in products} == {2 * 64 * 8 * 16 * 2}  # 256 threads, two groups
    assert all(one.partial for one in products)
    fed = {edge.target for edge in dag.edges if edge.kind == "async_dep"}
    assert {one.region_id for one in products} <= fed
    assert sum(one.loop.waits for one in dag.loops) >= 1
    work = dag.work
    copied = [one for one in dag.function.statements if "tensor" in one.modifiers]
    assert work.unknown_bytes == len(copied) and work.expected_bytes == 16384 * len(copied)


@pytest.mark.parametrize("target", ["80", "90"])
def test_more_stages_change_what_is_asynchronous(target: str) -> None:
    """Two stages or four: the same products, loads and stores of tiles."""
    kept = (COMPUTE, SHARED_LOAD, SHARED_STORE, GLOBAL_STORE)

    def rest(name: str) -> dict[tuple[str, bool], Work]:
        found: dict[tuple[str, bool], Work] = {}
        for one in dag_of(name).regions:
            if one.phase in kept:
                place = (one.phase, one.loop is None)
                found[place] = found.get(place, Work()) + one.work
        return found

    two, four = f"matmul_sm{target}_w4_s2", f"matmul_sm{target}_w4_s4"
    assert rest(two) == rest(four)
    copies = [
        sum(len(one.statements) for one in dag_of(name).regions if one.phase == ASYNC_COPY)
        for name in (two, four)
    ]
    assert copies[1] > copies[0]


@pytest.mark.parametrize("name", FILES)
def test_barriers_waits_and_branches_are_those_that_grep_finds(name: str) -> None:
    text = bare(text_of(name))
    dag = dag_of(name)
    found = [one for region in dag.regions for one in region.statements if region.phase == BARRIER]
    assert len(found) == len(re.findall(r"\b(?:bar|barrier)\.(?:sync|arrive|red)", text))
    waits = [
        one for one in dag.function.statements if {"wait_group", "wait_all"} & {*one.modifiers}
    ]
    assert len(waits) == len(re.findall(r"\.wait_(?:group|all)\b", text))
    branches = [one for one in dag.function.statements if one.opcode == "bra"]
    assert len(branches) == len(re.findall(r"(?<![\w.])bra\b", text))
    jumps_back = sum(edge.carried and edge.kind != "async_dep" for edge in dag.edges)
    assert jumps_back == len(dag.loops)


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_carried_has_no_circle(name: str) -> None:
    dag = dag_of(name)
    before = {one.region_id: set() for one in dag.regions}
    for edge in dag.edges:
        if not edge.carried:
            before[edge.target].add(edge.source)
    while before:
        free = [one for one, needs in before.items() if not needs]
        assert free
        for one in free:
            del before[one]
        for needs in before.values():
            needs.difference_update(free)


@pytest.mark.parametrize("name", [one for one in FILES if one.startswith("add")])
def test_add_reads_and_writes_its_lanes(name: str) -> None:
    """1024 lanes of fp32: two are read and one is written, whoever does it."""
    work = dag_of(name).work
    assert (work.global_read_bytes, work.global_write_bytes, work.flops) == (8192, 4096, 1024)
    assert work.masked > 0


@pytest.mark.parametrize("name", [one for one in FILES if one.startswith("matmul")])
def test_a_trip_of_matmul(name: str) -> None:
    """Tiles of 128 x 64 and 64 x 128 in fp16, and 2 M N K operations; in a descriptor on sm_100."""
    dag = dag_of(name)
    loops = [one for one in dag.loops if not one.loop.waits]
    assert len(loops) == 1
    work = loops[0].work
    assert work.global_read_bytes == 2 * 2 * 128 * 64 == 32768
    if "sm100" in name:
        assert (work.flops, work.unknown_flops) == (0, 4)
        assert region_views.overview(dag)["loops"][0]["work_a_trip"]["flops"] == "unknown"
    else:
        assert (work.flops, work.unknown_flops) == (2 * 128 * 128 * 64, 0)
    assert dag.copies.unawaited == ()


@pytest.mark.parametrize("name", FILES)
def test_the_bytes_that_the_sources_say(name: str) -> None:
    """A row of 2048 fp32 in and out, an exponential each; 1024 fp32 a trip; 1024 int32 and an atomic
    for each; keys and values of 64 x 64 fp16 a trip, two products and an exponential for each score."""
    dag = dag_of(name)
    loops = [one.work for one in dag.loops if not one.loop.waits]
    trip = loops[0] if loops else Work()
    if name.startswith("softmax"):
        assert (dag.work.global_read_bytes, dag.work.global_write_bytes) == (8192, 8192)
        assert (dag.work.sfu_ops, loops) == (2048, [])
    if name.startswith("reduction"):
        assert (trip.global_read_bytes, trip.flops, dag.outside.global_bytes) == (4096, 1024, 0)
    if name.startswith("histogram"):
        assert dag.work.global_read_bytes == 4096
        assert dag.work.atomic_ops == 1024 + dag.threads  # threads past the bins are masked
    if name.startswith("attention"):
        assert trip.global_read_bytes == 2 * 2 * 64 * 64
        scores = 128 * 64
        assert scores <= trip.sfu_ops < 1.1 * scores
        if "sm100" not in name:
            assert 0 <= trip.flops - 2 * 2 * 128 * 64 * 64 < 6 * scores


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("triton") is None or which("nvcc") is None, reason="it takes triton and nvcc"
)
def test_a_corpus_of_the_compilers_that_are_here(tmp_path: Path) -> None:
    """Whatever their versions: nothing is lost, and nothing unknown."""
    script = Path(__file__).parent / "make_corpus.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    made = sorted(tmp_path.glob("*.ptx.gz"))
    assert len(made) == len(EVERY)
    for path in made:
        text = gzip.decompress(path.read_bytes()).decode()
        module = read(text)
        assert module.count == bare(text).count(";"), path.name
        for function in module.functions:
            assert analyse_function(function, module).unknown == (), path.name


@pytest.mark.parametrize("name", FILES)
def test_views_are_json_and_as_wide_as_asked(name: str) -> None:
    dag = dag_of(name)
    whole = json.loads(region_views.to_json(dag))
    assert whole["metadata"]["counts"]["num_instructions"] == len(dag.function.statements)
    short = region_views.overview(dag, 2, 3)
    assert len(short["pipeline_stages"]) <= 2 and len(short["hot_regions"]) <= 3
    for region in dag.hot[:3]:
        detail = json.dumps(region_views.region_detail(dag, region.region_id, 4, whole=True))
        assert json.loads(detail)["ptx_snippet"][0] == region.statements[0].text
        brief = region_views.region_detail(dag, region.region_id, 4)["ptx_snippet"][0]
        assert region.statements[0].name in brief and len(brief) < 200
    assert sum(len(stage["region_ids"]) > 0 for stage in whole["pipeline_stages"]) == len(
        dag.stages
    )
    json.dumps(region_views.stage_detail(dag, len(dag.stages) - 1))


@pytest.mark.parametrize(
    "name", ["matmul_sm80_w4_s2", "histogram_sm90_w4_s2", "softmax_sm100_w8_s4"]
)
def test_an_edit_touches_the_region_of_its_line(name: str) -> None:
    text = text_of(name)
    lines, before = text.splitlines(), dag_of(name)
    for region in [one for one in before.regions if one.phase == "compute"][::9]:
        at = region.start_line - 1
        for edited in (lines[at] + lines[at], "", lines[at].replace("%r", "%r1", 1)):
            after = analyse("\n".join([*lines[:at], edited, *lines[at + 1 :]]))
            found = touched(before, after)
            lines_of = [one.start_line <= at + 1 <= one.end_line for one in found]
            assert any(lines_of)
            # Without its only statement a region is gone, and those around it may become one.
            assert all(lines_of) or (not edited and len(region.statements) == 1)


def test_lines_of_the_source() -> None:
    """The load stands in line 11 of the kernels' file, the product in line 26."""
    add = by_source(read(text_of("add_sm90_w4_s2")))
    assert {place.file for place in add} == {"/kernels/triton_kernels.py"}
    opcodes_of = {place.line: {one.opcode for one in found} for place, found in add.items()}
    assert {line for line, found in opcodes_of.items() if "st" in found} == {13}
    loads = [
        place.line for place, found in add.items() for one in found if one.name.startswith("ld.g")
    ]
    assert sorted(loads) == [11, 11, 12, 12]
    for target, product in (("80", "mma"), ("90", "wgmma"), ("100", "tcgen05")):
        found = by_source(read(text_of(f"matmul_sm{target}_w4_s2")))
        lines = {
            place.line for place, ones in found.items() for one in ones if one.opcode == product
        }
        assert 26 in lines
