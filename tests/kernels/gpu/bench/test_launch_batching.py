"""One launch for all steps of a host loop: what becomes of the source, and when nothing."""

import ast

import pytest
from plain_kernels import FLAT, LOOPED, OPEN_LOOP

from accelopt.kernels.triton.moves import launch_batching
from accelopt.kernels.triton.moves.knobs import Role, tile_roles
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.source import WORK, Source


def once(text):
    source = Source(text)
    return launch_batching.one_launch(source, source.launches[0])


def test_the_loop_writes_a_table_and_one_launch_reads_it():
    text = once(LOOPED)
    source = Source(text)
    [launch] = source.launches
    assert ast.unparse(launch.grid) == "(len(work), q.shape[1])"
    assert launch.kernel.parameters[-1] == WORK
    assert not {"q_begin", "rows", "kv_begin", "keys"} & set(launch.kernel.parameters)
    assert (
        "work += [(place, q_begin, rows, kv_begin, keys) for place in range(triton.cdiv(rows, 16))]"
    ) in text
    assert "torch.tensor(work, dtype=torch.int32, device=output.device)" in text
    kernel = ast.unparse(launch.kernel.node)
    assert f"rows = tl.load({WORK} + tl.program_id(0) * 5 + 2)" in kernel
    assert f"block = tl.load({WORK} + tl.program_id(0) * 5)" in kernel
    # The other arguments go to the parameters they went to.
    [before] = Source(LOOPED).launches
    for name in launch.kernel.parameters[:-1]:
        assert ast.dump(launch.bound(name)) == ast.dump(before.bound(name)), name


def test_tiles_are_known_as_such_afterwards_and_the_move_is_made_once():
    text = once(LOOPED)
    [launch] = Source(text).launches
    assert tile_roles(launch.kernel) == {"BLOCK_M": Role.PROGRAM, "BLOCK_N": Role.LOOP}
    assert once(text) is None


def test_it_goes_together_with_the_other_moves():
    first = proposals(LOOPED)[0]
    for words in ("index tensors to the host once", "with a table of the work", "power"):
        assert words in first.sentence
    assert ".item()" not in first.source and "tl.exp(" not in first.source


@pytest.mark.parametrize(
    "change",
    [
        ("q, k, v, q_begin", "q[q_begin:], k, v, q_begin"),  # a tensor for each step
        ("output, lse, sm_scale,", "q, lse, sm_scale,"),  # stores where it loads
        ("        if rows > 0:", "        lse[sequence] = 0.0\n        if rows > 0:"),
        ("        if rows > 0:", "        print(rows)\n        if rows > 0:"),
        ("        if rows > 0:", "        if rows == 7:\n            break\n        if rows > 0:"),
        ("rows = qo_indptr[sequence + 1].item() - q_begin", "rows = q_begin / 2"),
        ("rows = qo_indptr[sequence + 1].item() - q_begin", "rows = length_of(sequence)"),
        ("META[\"BLOCK_M\"]), q.shape[1])", "META[\"BLOCK_M\"]), keys)"),
        ("META[\"BLOCK_M\"])", "META[\"num_warps\"])"),
        ("BLOCK_M=16, ", "BLOCK_M=keys, "),
        ("tl.store(lse_ptr", "tl.atomic_add(lse_ptr"),
        ("in range(qo_indptr.shape[0] - 1)", "in order"),
    ],
)  # fmt: skip
def test_steps_that_must_stay_apart_stay_so(change):
    assert change[0] in LOOPED
    assert once(LOOPED.replace(*change)) is None


def test_a_number_that_may_be_none_is_passed_as_it_was():
    scaled = LOOPED.replace(
        "        if rows > 0:", "        factor = sm_scale[sequence].item()\n        if rows > 0:"
    ).replace("output, lse, sm_scale,", "output, lse, factor,")
    assert once(scaled) is None


def test_tensors_that_differ_and_loops_in_loops_stay():
    assert once(OPEN_LOOP) is None
    assert once(FLAT) is None
