"""All heads that read the same keys in one program: what becomes of the source, and when nothing."""

import ast

import pytest
from plain_kernels import FLAT, OPEN_LOOP

from accelopt.kernels.triton.moves import gqa_packing
from accelopt.kernels.triton.moves.knobs import HEADS, find_knobs, tile_roles
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.source import Source


def together(text):
    source = Source(text)
    return gqa_packing.heads_together(source, source.launches[0])


def launch_of(text):
    [launch] = Source(text).launches
    return launch


def test_one_head_becomes_the_heads_of_a_group():
    text = together(OPEN_LOOP)
    assert "logits = tl.dot(q, tl.trans(k))" in text
    assert "result = result * shrink[:, None] + tl.dot(weights, v)" in text.replace(
        "(shrink)", "shrink"
    )
    launch = launch_of(text)
    assert ast.unparse(launch.grid) == "(q.shape[1] // (q.shape[1] // k.shape[1]),)"
    assert ast.unparse(launch.bound(HEADS)) == "q.shape[1] // k.shape[1]"
    # What does not depend on the head is loaded as before.
    [before] = [line.strip() for line in OPEN_LOOP.splitlines() if "k = tl.load" in line]
    assert before.replace('"', "'") in text


def test_a_number_that_counts_rows_and_heads_counts_groups():
    text = together(FLAT)
    assert f"row = program // (QUERY_HEADS // {HEADS})" in text
    assert f"head = first_head + tl.arange(0, {HEADS})" in text
    assert "if first_head >= QUERY_HEADS:" in text
    assert "tl.dot(weights, tl.trans(v_turned))" in text
    launch = launch_of(text)
    assert ast.unparse(launch.grid) == "(rows * query_heads // (query_heads // k.shape[1]),)"


def test_without_a_quotient_all_heads_share_what_is_loaded():
    text = together(FLAT.replace("(head // GROUP).to(tl.int32)", "begin"))
    launch = launch_of(text)
    assert ast.unparse(launch.bound(HEADS)) == "query_heads"
    both = "tl.program_id(0)", "tl.program_id(1)"
    on_axes = (
        FLAT.replace("program = tl.program_id(axis=0)\n    ", "")
        .replace("program // QUERY_HEADS", both[0])
        .replace("program % QUERY_HEADS", both[1])
        .replace("(rows * query_heads,)", "(rows, query_heads)")
        .replace("(head // GROUP).to(tl.int32)", "begin")
    )
    launch = launch_of(together(on_axes))
    assert ast.unparse(launch.grid) == "(rows, 1)"
    assert ast.unparse(launch.bound(HEADS)) == "query_heads"


@pytest.mark.parametrize(
    "change",
    [
        ("head // group) * HEAD_DIM", "head) * HEAD_DIM"),  # every head has keys of its own
        ("head // group) * HEAD_DIM", "head % group) * HEAD_DIM"),
        ("head // group) * HEAD_DIM", "head // group + head // heads) * HEAD_DIM"),
        ("while at < count", "while at < count + head"),  # heads that end at different steps
        ("    at = tl.zeros", "    if head > 3:\n        scale = 1.0\n    at = tl.zeros"),
        ("    at = tl.zeros", "    head = head + 1\n    at = tl.zeros"),
        ("    at = tl.zeros", "    group = group + 1\n    at = tl.zeros"),
        ("tl.store(lse_ptr + head,", "tl.store(lse_ptr,"),  # one place for all heads
        ("tl.sum(k * q[None, :], axis=1)", "tl.sum(k + q[None, :], axis=1)"),
        ("tl.sum(k * q[None, :], axis=1)", "tl.sum(k * q[None, :], axis=0)"),
        ("tl.sum(k * q[None, :], axis=1)", "tl.sum(tl.abs(k * q[None, :]), axis=1)"),
        ("[(q.shape[1],)]", "[grid_of(q)]"),  # a grid that cannot be read
        ("    at = tl.zeros", "    own = tl.program_id(0)\n    at = tl.zeros"),  # asked twice
        ("    at = tl.zeros", "    all_of_them = tl.num_programs(0)\n    at = tl.zeros"),
    ],
)
def test_heads_that_do_not_read_alike_stay_apart(change):
    assert change[0] in OPEN_LOOP
    assert together(OPEN_LOOP.replace(*change)) is None


def test_a_place_that_is_read_otherwise_stays_whole():
    assert (
        together(FLAT.replace("last = count - rows + row", "last = count - rows + program")) is None
    )
    assert together(FLAT.replace("row = program // QUERY_HEADS", "row = program // GROUP")) is None


def test_the_heads_are_no_tile_and_are_put_together_once():
    text = together(OPEN_LOOP)
    assert HEADS not in tile_roles(launch_of(text).kernel)
    assert together(text) is None


def test_it_goes_first_and_with_the_other_moves():
    first = proposals(OPEN_LOOP)[0]
    assert "all heads that read the same keys" in first.sentence
    assert "16-bit format" in first.sentence and "power" in first.sentence
    text = first.source
    assert "tl.dot(q.to(k.dtype)" in text or "tl.dot(q, tl.trans(k))" in text
    assert "tl.exp(" not in text and "for at in range" in text


def test_a_tuned_kernel_is_known_by_its_tiles():
    tuned = OPEN_LOOP.replace(
        "@triton.jit",
        "@triton.autotune(configs=[triton.Config({'BLOCK': 64}, num_warps=4)], key=['count'])\n@triton.jit",
    ).replace("BLOCK=4, ", "")
    assert "all heads" in proposals(tuned)[0].sentence
    assert not find_knobs(Source(tuned), launch_of(tuned))
