"""Attention loops over keys: split among programs, and their addresses prefetched."""

import ast

import pytest
from plain_kernels import BY_SEQUENCE, FLAT, LOOPED, OPEN_LOOP

from accelopt.kernels.triton.moves import (
    address_prefetch,
    gqa_packing,
    launch_batching,
    loops,
    masks,
    output_fills,
    split_k,
)
from accelopt.kernels.triton.moves.loop_state import NotJoined, states_of
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.source import Source
from accelopt.kernels.triton.moves.split_k_parts import parts_of


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
    assert on_launch(split_k.split_loop, text, 1) is None
    loop = next(n for n in ast.walk(Source(text).launches[0].kernel.node) if isinstance(n, ast.For))
    before = ast.parse("highest = 0\ntotal = 0\nresult = 0").body
    with pytest.raises(NotJoined):
        states_of(loop, before)


def test_a_shared_loop_is_what_it_was_where_it_is_not_shared():
    text = on_launch(split_k.split_loop, counted(OPEN_LOOP), 2)
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
    text = on_launch(split_k.split_loop, text, 1)
    shared = kernels(text)["decode_kernel"]
    assert "range(split_begin, tl.minimum(split_end, unmasked_end), BLOCK)" in shared
    assert "range(tl.maximum(split_begin, unmasked_end), split_end, BLOCK)" in shared


def test_each_head_is_joined_by_a_program_of_its_own():
    text = on_launch(gqa_packing.heads_together, counted(OPEN_LOOP))
    text = on_launch(split_k.split_loop, text, 1)
    joined = kernels(text)["decode_kernel_joined"]
    assert "tl.program_id(1) + tl.arange(0, LANES_JOINED)" in joined
    assert "LANES_JOINED=1" in text


def test_both_kernels_get_one_tile_whoever_sets_it():
    for proposal in proposals(FLAT):
        if "split_k" in proposal.change.move:
            first, second = Source(proposal.source).launches
            tile = ast.unparse(first.bound("BLOCK"))
            assert tile == ast.unparse(second.bound("BLOCK")) == "block"
            assert proposal.source.count("block = ") == 1


def test_places_are_looked_up_one_step_ahead():
    text = on_launch(gqa_packing.heads_together, BY_SEQUENCE)
    kernel = kernels(on_kernel(address_prefetch.looked_up_ahead, text))["by_sequence_kernel"]
    assert "page_ahead = tl.load(page_ptr + begin + (0 + tl.arange(0, BLOCK))" in kernel
    assert "page = page_ahead" in kernel
    assert "(start + BLOCK < count)" in kernel.replace(
        "start + BLOCK < count, ", "(start + BLOCK < count)"
    )
    assert on_kernel(address_prefetch.looked_up_ahead, OPEN_LOOP) is None


def test_a_loop_ends_at_the_last_key_that_its_query_sees():
    text = on_kernel(masks.stop_at_bound, on_launch(gqa_packing.heads_together, BY_SEQUENCE))
    assert "visible_end = tl.minimum(count, last + 1)" in text


def test_outputs_are_filled_where_the_work_leaves_steps_out():
    text = on_launch(launch_batching.one_launch, LOOPED)
    filled = on_launch(output_fills.filled_where_left, text)
    assert "torch.zeros" not in filled.split("def run")[1]
    assert "if not work or steps_taken < len(" in filled
    assert on_launch(output_fills.filled_where_left, LOOPED) is None, "no table of the work"


def test_a_run_without_a_model_is_offered_all_of_it():
    moves = {m for p in proposals(BY_SEQUENCE) for m in p.change.move.split("+")}
    assert {"pack_gqa_heads", "tighten_loop_bound", "prefetch_addresses"} <= moves
    moves = {m for p in proposals(OPEN_LOOP) for m in p.change.move.split("+")}
    assert {"pack_gqa_heads", "split_k"} <= moves
