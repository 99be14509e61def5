"""Kernels on which a move would change the result: it must say so instead."""

import pytest

from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Site
from accelopt.kernels.nki.moves.propose import prepare
from accelopt.kernels.nki.moves.registry import MOVES, move, option
from accelopt.kernels.nki.moves.surgery.hoisting import contract, hoist
from accelopt.kernels.nki.moves.surgery.loops import distribute, interchange, split
from accelopt.kernels.nki.moves.surgery.widening import merge_blocks, widen
from accelopt.kernels.nki.parameters import ParameterFacts

HEADER = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, y):
    out = nl.ndarray((4, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
"""
ARGUMENTS = {"x": ParameterFacts((4, 128, 1024)), "y": ParameterFacts((4, 128, 1024))}


def kernel(body):
    indented = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return prepare(f"{HEADER}{indented}    return out\n", Facts(arguments=ARGUMENTS))


def sites(name, subject):
    found = []
    for site, make in move(name).options(subject, Facts(arguments=ARGUMENTS)):
        try:
            make()
        except IllegalMove:
            continue
        found.append(site)
    return found


READ_AND_WRITE_BACK = """
for i in nl.sequential_range(4):
    for j in nl.affine_range(2):
        a = nl.load(x[0, :, j * 512:(j + 1) * 512])
        b = nl.load(out[0, :, j * 512:(j + 1) * 512])
        nl.store(out[0, :, j * 512:(j + 1) * 512], value=nl.add(a, b))
"""

RUNNING_TILE = """
state = nl.zeros((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
for i in nl.sequential_range(4):
    a = nl.load(x[i, :, :])
    state[:, :] = nl.add(nl.multiply(state, 0.5), a)
    nl.store(out[i, :, :], value=state)
"""


def test_a_load_of_what_the_loop_writes_stays():
    with pytest.raises(IllegalMove, match="writes out"):
        hoist(kernel(READ_AND_WRITE_BACK), "i", "b")


def test_a_load_of_what_nothing_writes_goes():
    assert "nl.load" in hoist(kernel(READ_AND_WRITE_BACK), "i", "a").render().split("for i")[0]


def test_a_value_of_the_loop_variable_stays():
    with pytest.raises(IllegalMove, match="depends on i"):
        hoist(kernel(RUNNING_TILE), "i", "a")


def test_a_running_tile_stays():
    with pytest.raises(IllegalMove):
        hoist(kernel(RUNNING_TILE), "i", "state")


def test_a_decaying_tile_decays_in_every_iteration():
    subject = kernel("""
state = nl.zeros((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
a = nl.load(x[0, :, :])
for i in nl.sequential_range(4):
    state[:, :] = nl.add(nl.multiply(state, 0.5), a)
nl.store(out[0, :, :], value=state)
""")
    with pytest.raises(IllegalMove, match="state is read before it is made"):
        hoist(subject, "i", "state")
    assert not sites("hoist", subject)


def test_a_tile_whose_halves_feed_each_other_stays():
    subject = kernel("""
state = nl.zeros((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
for i in nl.sequential_range(4):
    state[:, 0:512] = nl.load(x[0, :, 0:512])
    nl.store(out[i, :, 0:512], value=state[:, 512:1024])
    state[:, 512:1024] = nl.exp(state[:, 0:512])
""")
    assert not sites("hoist", subject)


def test_an_accumulator_stays_in_its_loop():
    body = """
acc = nl.zeros((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
b = nl.load(y[0, :, :])
for i in nl.affine_range(4):
    acc += b
nl.store(out[0, :, :], value=acc)
"""
    with pytest.raises(IllegalMove, match="summed up"):
        hoist(kernel(body), "i", "acc")


@pytest.mark.parametrize("body", [READ_AND_WRITE_BACK, RUNNING_TILE])
def test_loops_that_carry_values_keep_their_order(body):
    subject = kernel(body)
    for name in ("interchange", "block", "widen", "fuse_loops"):
        assert not [s for s in sites(name, subject) if s.parameters.get("loop") == "i"], name


def test_sequential_rows_may_be_reordered_when_each_is_its_own():
    subject = kernel("""
for i in nl.sequential_range(4):
    for j in nl.sequential_range(2):
        a = nl.load(x[i, :, j * 512:(j + 1) * 512])
        nl.store(out[i, :, j * 512:(j + 1) * 512], value=nl.exp(a))
""")
    text = interchange(subject, "i").render()
    assert text.index("for j") < text.index("for i")


def test_overlapping_rows_may_not():
    subject = kernel("""
for i in nl.sequential_range(3):
    for j in nl.sequential_range(2):
        a = nl.load(x[i, :, j * 512:(j + 1) * 512])
        nl.store(out[0, :, i * 256:i * 256 + 512], value=a)
""")
    with pytest.raises(IllegalMove, match="share elements of out"):
        interchange(subject, "i")


def test_a_bounded_inner_loop_does_not_move_out():
    subject = kernel("""
for i in nl.affine_range(4):
    for j in nl.affine_range(i + 1):
        a = nl.load(x[i, :, j * 256:(j + 1) * 256])
        nl.store(out[i, :, j * 256:(j + 1) * 256], value=a)
""")
    with pytest.raises(IllegalMove, match="may depend on i"):
        interchange(subject, "i")


def test_split_needs_a_divisor():
    with pytest.raises(IllegalMove, match="3 does not divide"):
        split(kernel(RUNNING_TILE), "i", 3)


def test_what_crosses_a_cut_must_be_kept_in_sbuf():
    subject = kernel("""
for i in nl.affine_range(4):
    acc = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    a = nl.load(x[i, :, 0:128])
    acc += nisa.nc_matmul(a, nl.load(y[i, :, 0:512]))
    nl.store(out[i, :, 0:512], value=nl.copy(acc))
""")
    with pytest.raises(IllegalMove, match="acc"):
        distribute(subject, "i", 3)


def test_a_shared_block_dimension_stays():
    subject = kernel("""
t = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
for i in nl.affine_range(4):
    t[i, 0:128, 0:512] = nl.load(x[i, 0:128, 0:512])
for k in nl.affine_range(4):
    nl.store(out[k, 0:128, 0:512], value=t[3 - k, 0:128, 0:512])
""")
    with pytest.raises(IllegalMove, match="across iterations"):
        contract(subject, "t", 0)
    assert not sites("fuse_loops", subject)


def test_a_partly_used_block_stays_a_block():
    subject = kernel("""
t = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
for i in nl.affine_range(4):
    t[i, 0:128, 0:512] = nl.load(x[i, 0:128, 0:512])
    nl.store(out[i, 0:128, 0:256], value=t[i, 0:128, 256:512])
""")
    with pytest.raises(IllegalMove, match="whole blocks"):
        merge_blocks(subject, {"t": 0})


def test_a_row_sum_is_not_widened():
    subject = kernel("""
for j in nl.affine_range(2):
    a = nl.load(x[0, :, j * 512:(j + 1) * 512])
    s = nl.sum(a, axis=1)
    nl.store(out[0, :, j * 512:(j + 1) * 512], value=nl.multiply(a, s))
""")
    with pytest.raises(IllegalMove, match=r"nl\.sum"):
        widen(subject, "j", 2)


def test_a_reshaped_tensor_is_not_taken_for_the_tensor():
    subject = kernel("""
for j in nl.affine_range(2):
    a = nl.load(x.reshape((512, 1024))[0:128, j * 512:(j + 1) * 512])
    nl.store(out[0, :, j * 512:(j + 1) * 512], value=a)
""")
    assert not sites("widen", subject) and not sites("merge_loads", subject)


def test_tiles_that_do_not_lie_side_by_side_are_not_widened():
    subject = kernel("""
for j in nl.affine_range(2):
    a = nl.load(x[0, :, (1 - j) * 512:(1 - j) * 512 + 512])
    nl.store(out[0, :, j * 512:(j + 1) * 512], value=a)
""")
    with pytest.raises(IllegalMove, match="side by side"):
        widen(subject, "j", 2)


def test_psum_tiles_stay_within_a_bank():
    subject = kernel("""
a = nl.load(x[0, :, 0:128])
for j in nl.affine_range(2):
    b = nl.load(y[0, :, j * 512:(j + 1) * 512])
    nl.store(out[0, :, j * 512:(j + 1) * 512], value=nl.copy(nisa.nc_matmul(a, b)))
""")
    assert not sites("widen", subject)


def test_a_changed_operand_is_not_looked_through():
    subject = kernel("""
t = nl.load(x[0, :, :])
e = nl.exp(nl.multiply(t, -1.0))
t[:, :] = nl.load(y[0, :, :])
nl.store(out[0, :, :], value=nl.divide(t, nl.add(e, 1.0)))
""")
    assert not [s for s in sites("fuse", subject) if s.parameters["pattern"] == "silu"]


def test_other_constants_are_no_silu():
    subject = kernel("""
t = nl.load(x[0, :, :])
e = nl.exp(nl.multiply(t, -2.0))
nl.store(out[0, :, :], value=nl.divide(t, nl.add(e, 1.0)))
""")
    assert not [s for s in sites("fuse", subject) if s.parameters["pattern"] == "silu"]


def test_a_repeated_load_of_a_written_tensor_stays():
    subject = kernel("""
a = nl.load(out[0, :, :])
nl.store(out[0, :, :], value=nl.add(a, 1.0))
b = nl.load(out[0, :, :])
nl.store(out[1, :, :], value=b)
""")
    assert not sites("reuse_load", subject)


def test_a_copy_that_is_changed_stays():
    subject = kernel("""
a = nl.load(x[0, :, :])
c = nl.copy(a)
c[:, 0:512] = nl.exp(a[:, 0:512])
nl.store(out[0, :, :], value=nl.add(c, a))
""")
    assert not sites("drop_copy", subject)


def test_operands_of_the_tensor_engine_are_copied_out_of_psum():
    subject = kernel("""
a = nl.load(x[0, :, 0:128])
t = nl.copy(nisa.nc_transpose(a))
p = nisa.nc_transpose(a)
c = nl.copy(p)
nl.store(out[0, :, 0:128], value=nl.copy(nisa.nc_matmul(t, c)))
""")
    assert not sites("drop_copy", subject)


def test_opaque_code_is_left_alone():
    """A helper may write whatever it is given; nothing moves across it."""
    subject = kernel("""
for i in nl.affine_range(4):
    a = nl.load(x[0, :, :])
    helper(a)
    nl.store(out[i, :, :], value=a)
""")
    assert not sites("hoist", subject) and not sites("interchange", subject)


def test_a_number_that_counts_along_keeps_the_loop_as_it_is():
    subject = kernel("""
start = 0
for i in nl.static_range(4):
    for j in nl.static_range(2):
        a = nl.load(x[0, :, start:start + 128])
        nl.store(out[i, :, j * 128:(j + 1) * 128], value=a)
    start += 128
""")
    for name in MOVES:
        assert not sites(name, subject), name


@pytest.mark.parametrize("name", MOVES)
def test_a_plan_for_another_kernel_is_refused(name):
    parameters = {"loop": "nowhere", "value": "nothing", "at": "9.9", "part": 0, "factor": 2,
                  "pattern": "silu", "engine": "vector", "keep": False}  # fmt: skip
    with pytest.raises(IllegalMove):
        option(Site(name, parameters, ""), kernel(RUNNING_TILE), Facts(arguments=ARGUMENTS))


def test_a_tile_that_is_given_a_shape_does_not_grow():
    """`broadcast_to((128, 512))` names the width that widening would change."""
    subject = kernel(
        """
for j in nl.affine_range(2):
    a = nl.load(x[0, 0:1, j * 512:(j + 1) * 512])
    nl.store(out[0, :, j * 512:(j + 1) * 512], value=nl.exp(a.broadcast_to((128, 512))))
"""
    )
    with pytest.raises(IllegalMove, match="gives a shape itself"):
        widen(subject, "j", 2)
    assert not sites("widen", subject)


@pytest.mark.parametrize(
    "load",
    [
        "t = nl.load_transpose2d(x[0, 0:64, 0:256])",  # more columns than the engine turns
        "t = nl.load_transpose2d(turned[0:200, 0:64])",  # no whole blocks of rows
        "t = nl.exp(nl.load_transpose2d(turned[0:256, 0:64]))",  # no name of its own
        "t = nl.load_transpose2d(turned[i_p, i_f])",  # indices that are no slices
        "t = nl.load_transpose2d(x[0, 0:64, 0:64], mask=(i_p[0:64] < 32))",
    ],
)
def test_transposing_loads_that_the_engine_cannot_turn_stay(load):
    before = "turned = nl.ndarray((512, 64), dtype=nl.float32, buffer=nl.shared_hbm)\n"
    indices = "i_p, i_f = nl.mgrid[0:256, 0:64]\n"
    store = "\nnl.store(out[0, 0:64, 0:64], value=t[0:64, 0:64])"
    assert not sites("transpose_on_engine", kernel(before + indices + load + store))
    fits = "t = nl.load_transpose2d(turned[0:256, 0:64])"
    assert sites("transpose_on_engine", kernel(before + indices + fits + store))
