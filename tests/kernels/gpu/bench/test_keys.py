"""Loops over keys: shared among programs, for several queries, loaded once and looked up ahead."""

import ast

import pytest
from plain_kernels import BY_SEQUENCE, FLAT, LOOPED, OPEN_LOOP

from accelopt.kernels.triton.moves import (
    ahead,
    arithmetic,
    clamps,
    conditions,
    fills,
    heads,
    launches,
    loops,
    masks,
    queries,
    scales,
    sharing,
    splits,
)
from accelopt.kernels.triton.moves.pieces import parts_of
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.source import QUERIES, Source
from accelopt.kernels.triton.moves.states import NotJoined, states_of


def on_kernel(move, text):
    source = Source(text)
    kernel = source.launches[0].kernel
    node = move(kernel)
    return None if node is None else source.with_kernel(kernel, node)


def on_launch(move, text, *arguments):
    source = Source(text)
    return move(source, source.launches[0], *arguments)


def counted(text):
    return on_kernel(loops.counted_loop, text)


def kernels(text):
    return {name: ast.unparse(kernel.node) for name, kernel in Source(text).kernels.items()}


def states(text):
    node = next(iter(Source(text).kernels.values())).node
    return parts_of(node).states


def test_a_softmax_carries_a_maximum_and_scaled_sums():
    found = states(counted(OPEN_LOOP))
    assert found.maximum == "highest"
    factors = {name: ast.unparse(factor) for name, factor in found.sums.items()}
    assert factors == dict.fromkeys(("total", "result"), "tl.exp(state_before - state_after)")


def test_the_factor_may_be_guarded_and_the_sum_in_two_statements():
    found = states(FLAT)
    assert set(found.sums) == {"total", "result"}
    for factor in found.sums.values():
        assert ast.unparse(factor).startswith("tl.where(state_before == nothing, 0.0,")


@pytest.mark.parametrize(
    "change",
    [
        ("highest = higher\n", "highest = higher + 1.0\n"),
        ("total = total * shrink + tl", "total = total * total + tl"),
        ("result = result * shrink + tl", "result = result * shrink * shrink + total * tl"),
        ("total = total * shrink +", "total = total * tl.sum(k) +"),
    ],
)
def test_what_else_is_carried_cannot_be_joined(change):
    assert change[0] in OPEN_LOOP
    text = counted(OPEN_LOOP.replace(*change))
    assert on_launch(splits.split_loop, text, 1) is None
    loop = next(n for n in ast.walk(Source(text).launches[0].kernel.node) if isinstance(n, ast.For))
    before = ast.parse("highest = 0\ntotal = 0\nresult = 0").body
    with pytest.raises(NotJoined):
        states_of(loop, before)


def test_a_shared_loop_is_what_it_was_where_it_is_not_shared():
    text = on_launch(splits.split_loop, counted(OPEN_LOOP), 2)
    shared, joined = kernels(text)["decode_kernel"], kernels(text)["decode_kernel_joined"]
    assert "for at in range(split_begin, split_end, BLOCK):" in shared
    # The store that was there is there for one piece, and in the kernel that joins several.
    for kernel in (shared, joined):
        assert "tl.store(o_ptr + head * HEAD_DIM + channel, result / total)" in kernel
    assert "2 * processors" in text
    assert "if splits > 1:" in text
    assert "for at in" not in joined


def test_a_loop_whose_masks_were_taken_out_is_shared_as_one():
    text = on_kernel(masks.peel_masks, counted(OPEN_LOOP))
    text = on_launch(splits.split_loop, text, 1)
    shared = kernels(text)["decode_kernel"]
    assert "range(split_begin, tl.minimum(split_end, unmasked_end), BLOCK)" in shared
    assert "range(tl.maximum(split_begin, unmasked_end), split_end, BLOCK)" in shared


def test_each_head_is_joined_by_a_program_of_its_own():
    text = on_launch(heads.heads_together, counted(OPEN_LOOP))
    text = on_launch(splits.split_loop, text, 1)
    joined = kernels(text)["decode_kernel_joined"]
    assert "tl.program_id(1) + tl.arange(0, LANES_JOINED)" in joined
    assert "LANES_JOINED=1" in text


def test_both_kernels_get_one_tile_whoever_sets_it():
    for proposal in proposals(FLAT):
        if "split_loop" in proposal.change.move:
            first, second = Source(proposal.source).launches
            tile = ast.unparse(first.bound("BLOCK"))
            assert tile == ast.unparse(second.bound("BLOCK")) == "block"
            assert proposal.source.count("block = ") == 1


def test_a_program_takes_all_heads_of_several_queries():
    text = on_launch(queries.queries_together, BY_SEQUENCE, 64)
    kernel = kernels(text)["by_sequence_kernel"]
    assert "while sequence <= last_of_rows:" in kernel
    assert "row_is_inside = row_is_of_query & (of_row == sequence)" in kernel
    assert "tl.load(kv_indptr_ptr + sequence)" in kernel
    assert "token[None, :] <= last[:, None]" in kernel.replace("(last)", "last")
    [launch] = Source(text).launches
    assert ast.unparse(launch.bound(QUERIES)) == "32"
    assert ast.unparse(launch.grid) == "(triton.cdiv(q.shape[0], 32), 1)"


def test_rows_past_the_last_query_read_that_one_and_store_nothing():
    kernel = kernels(on_launch(queries.queries_together, BY_SEQUENCE, 64))["by_sequence_kernel"]
    assert "query_read = tl.minimum(query, query_count - 1)" in kernel
    assert "of_row = tl.load(sequence_ptr + query_read)" in kernel
    assert (
        "tl.load((q_ptr + (query_read * HEADS + head) * (2 * HALF))[:, None] + channel[None, :])"
        in kernel
    )
    assert kernel.count("mask=row_is_inside") == kernel.count("tl.store(") == 3
    assert "query_here = query + tl.minimum(turns, 0)" in kernel.split("while sequence")[1]


def test_rows_of_other_sequences_stay_masked_where_the_sequence_says_the_place():
    text = BY_SEQUENCE.replace("q_ptr + own + channel)", "q_ptr + own + first + channel)")
    assert text != BY_SEQUENCE
    kernel = kernels(on_launch(queries.queries_together, text, 64))["by_sequence_kernel"]
    [line] = [line for line in kernel.splitlines() if "tl.load((q_ptr" in line]
    assert "mask=row_is_inside[:, None]" in line


@pytest.mark.parametrize(
    "change",
    [
        ("(q.shape[0], HEADS)", "(q.shape[0] + tl.num_programs(0), HEADS)"),
        ("sequence = tl.load(sequence_ptr + query)", "sequence = query + head"),
        ("HEADS = 2", "HEADS = q.shape[1]"),
    ],
)
def test_queries_that_share_no_keys_stay_apart(change):
    assert change[0] in BY_SEQUENCE
    text = BY_SEQUENCE.replace(*change)
    assert on_launch(queries.queries_together, text, 64) is None or "num_programs" in change[1]


def test_tiles_are_loaded_once_and_what_stays_before_the_loop():
    text = on_launch(queries.queries_together, BY_SEQUENCE, 64)
    kernel = kernels(on_launch(sharing.shared_loads, text))["by_sequence_kernel"]
    assert "tl.static_range" not in kernel
    assert kernel.count("tl.load(k_ptr") == 2, "each half of the keys once"
    before, inside = kernel.split("for start in")
    assert before.count("tl.load((q_ptr") == 2
    assert "q_ptr" not in inside


def test_a_loop_that_stores_loads_again():
    text = BY_SEQUENCE.replace(
        "        highest = higher\n", "        highest = higher\n        tl.store(o_ptr, 0.0)\n"
    )
    assert on_launch(sharing.shared_loads, text) is None


def test_places_are_looked_up_one_step_ahead():
    text = on_launch(heads.heads_together, BY_SEQUENCE)
    kernel = kernels(on_kernel(ahead.looked_up_ahead, text))["by_sequence_kernel"]
    assert "page_ahead = tl.load(page_ptr + begin + (0 + tl.arange(0, BLOCK))" in kernel
    assert "page = page_ahead" in kernel
    assert "(start + BLOCK < count)" in kernel.replace(
        "start + BLOCK < count, ", "(start + BLOCK < count)"
    )
    assert on_kernel(ahead.looked_up_ahead, OPEN_LOOP) is None


def test_a_loop_ends_at_the_last_key_that_its_query_sees():
    text = on_kernel(masks.stop_at_bound, on_launch(heads.heads_together, BY_SEQUENCE))
    assert "visible_end = tl.minimum(count, last + 1)" in text


def test_conditions_that_always_hold_or_that_stores_ask_again_go():
    masked = OPEN_LOOP.replace(
        "place, mask=inside[:, None]", "place, mask=inside[:, None] & (channel[None, :] < HEAD_DIM)"
    )
    text = on_kernel(conditions.fewer_conditions, masked)
    assert "channel[None, :] < HEAD_DIM" not in text
    assert text.count("mask=(token < count)[:, None]") == 2
    assert on_kernel(conditions.fewer_conditions, OPEN_LOOP) is None


def test_outputs_are_filled_where_the_work_leaves_steps_out():
    text = on_launch(launches.one_launch, LOOPED)
    filled = on_launch(fills.filled_where_left, text)
    assert "torch.zeros" not in filled.split("def run")[1]
    assert "if not work or steps_taken < len(" in filled
    assert on_launch(fills.filled_where_left, LOOPED) is None, "no table of the work"


def products_of_tiles():
    """`BY_SEQUENCE` with its sums of products made products of tiles, each tile loaded once."""
    text = on_launch(queries.queries_together, BY_SEQUENCE, 64)
    text = on_launch(sharing.shared_loads, text)
    return on_kernel(arithmetic.own_precision_dots, text)


def test_the_last_key_is_loaded_again_in_the_place_of_masks():
    kernel = kernels(on_kernel(clamps.last_again, products_of_tiles()))["by_sequence_kernel"]
    loop = kernel.split("for start in")[1].split("if count > 0:")[0]
    assert "token_inside = tl.minimum(token, count - 1)" in loop
    assert "page = tl.load(page_ptr + begin + token_inside)\n" in loop
    assert loop.count("tl.load(k_ptr") == 2 and "mask=" not in loop
    assert "tl.where(inside[None, :] &" in loop, "scores past the last key stay hidden"
    ahead_of_it = kernels(
        on_kernel(ahead.looked_up_ahead, on_kernel(clamps.last_again, products_of_tiles()))
    )["by_sequence_kernel"]
    assert "tl.minimum(start + BLOCK + tl.arange(0, BLOCK), count - 1))\n" in ahead_of_it
    assert "mask=0 < count" in ahead_of_it.split("for start in")[0]


@pytest.mark.parametrize(
    "change",
    [
        ("for start in range(0, count, BLOCK)", "for start in range(0, count + BLOCK, BLOCK)"),
        ("tl.where(inside[None, :] & ", "tl.where("),
        (
            "highest = higher\n",
            "highest = higher\n            left = left + tl.sum(page, axis=0)\n",
        ),
        ("inside = token < count", "inside = token < count - tl.max(highest, axis=0)"),
    ],
)
def test_keys_past_the_end_that_something_sees_stay_masked(change):
    text = products_of_tiles()
    assert change[0] in text
    moved = on_kernel(clamps.last_again, text.replace(*change, 1))
    assert moved is None or "page = tl.load(page_ptr + begin + token, mask=inside" in moved


TWICE = "logits = logits * scale; z = logits * 1.5; highest = tl.maximum(highest, z)"


def scaled(steps, behind="highest"):
    return f"""import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, o_ptr, n, scale, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    highest = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        logits = tl.load(x_ptr + start + place)
        {steps}
    tl.store(o_ptr + place, {behind})


def run(x, o):
    kernel[(1,)](x, o, x.shape[0], 0.5, BLOCK=64)
"""


def test_two_scales_become_one():
    text = on_kernel(scales.one_scale, scaled(TWICE))
    assert "z = logits * (scale * 1.5)" in text and text.count("scale") == 2
    assert on_kernel(scales.one_scale, text) is None


@pytest.mark.parametrize(
    "text",
    [
        scaled(TWICE.replace("highest, z", "highest, z + logits")),
        scaled(TWICE.replace("z =", "logits = logits + 1; z =")),
        scaled("scale = scale + 1; " + TWICE),
        scaled(TWICE.replace("* 1.5", "* highest")),
        scaled("later = 0.0; " + TWICE, behind="highest + logits"),
    ],
)
def test_scales_of_what_something_else_reads_stay_two(text):
    assert on_kernel(scales.one_scale, text) is None


def test_a_kernel_fills_what_it_does_not_compute():
    text = on_launch(fills.filled_by_kernel, BY_SEQUENCE)
    kernel = kernels(text)["by_sequence_kernel"]
    done, left = kernel.split("    else:\n")
    assert done.count("tl.store(") == left.count("tl.store(") == 3
    assert "tl.store(o_ptr + own + channel_left, 0.0)" in left
    assert "tl.store(lse_ptr + query * HEADS + head, -float('inf'))" in left
    assert "torch.zeros" not in text and "torch.full" not in text


@pytest.mark.parametrize(
    "change",
    [
        ("    if count > 0:\n", "    if count > 3:\n        return\n    if count > 0:\n"),
        ("        tl.store(lse_ptr", "    tl.store(lse_ptr"),
        ("own + channel_left, left", "own + tl.load(page_ptr) + channel_left, left"),
        ("    by_sequence_kernel[", "    output += 1\n    by_sequence_kernel["),
    ],
)
def test_outputs_that_are_reached_otherwise_stay_filled(change):
    assert change[0] in BY_SEQUENCE
    assert on_launch(fills.filled_by_kernel, BY_SEQUENCE.replace(*change, 1)) is None


def test_a_run_without_a_model_is_offered_all_of_it():
    moves = proposals(BY_SEQUENCE)[0].change.move.split("+")
    assert {"queries_together", "share_loads", "stop_at_bound", "look_up_ahead"} <= set(moves)
    moves = {m for p in proposals(OPEN_LOOP) for m in p.change.move.split("+")}
    assert {"heads_together", "split_loop"} <= moves
