"""What `accelopt profile` advises first: each mechanism in a small kernel that has it, and not where it is mended.

Evidence: the kernel with the edit carried out is simulated too.
"""

import numpy as np
import pytest
from kernel_heads import neuronxcc_kernel, nki_kernel

from accelopt.hardware import TARGETS
from accelopt.kernels.nki.advice import Rewrite, advice, advice_text
from accelopt.sim.dialects.dialect import trace_kernel
from accelopt.sim.kernel_loading import load
from accelopt.sim.timing import UNRESOLVED, Compiler, profile
from accelopt.sim.timing.occupancy import memory_use
from accelopt.sim.timing.what_if import what_ifs
from accelopt.sim.trace import AbstractTensor
from tests.sim.timing.timing_kernels import F32, timed

HEAD = "import numpy as np\n" + neuronxcc_kernel("""def kernel(x, w):
    out = nl.ndarray({shape}, dtype=x.dtype, buffer=nl.shared_hbm)
""")
ROWS = """    for i in nl.affine_range({trips}):
        tile = nl.load(x[i * {rows}:(i + 1) * {rows}, 0:2048])
        for _ in nl.static_range(3):
            tile = nisa.reciprocal(tile)
        nl.store(out[i * {rows}:(i + 1) * {rows}, 0:2048], tile)
    return out
"""
COLUMNS = """    for i in nl.affine_range(4):
        for j in nl.affine_range({trips}):
            tile = nl.load(x[i * 128:(i + 1) * 128, j * {columns}:(j + 1) * {columns}])
            for _ in nl.static_range(3):
                tile = nl.maximum(tile, 1.0)
            nl.store(out[i * 128:(i + 1) * 128, j * {columns}:(j + 1) * {columns}], tile)
    return out
"""
AGAIN = """    for i in nl.sequential_range(8):
        tile = nl.load(x[i * 128:(i + 1) * 128, 0:2048])
        for k in nl.affine_range(16):
            other = nl.load(w[k * 128:(k + 1) * 128, 0:2048])
            nl.store(out[i, k, 0:128, 0:8], nl.multiply(tile[0:128, 0:8], other[0:128, 0:8]))
    return out
"""
ONCE = """    held = nl.ndarray((16, nl.par_dim(128), 2048), dtype=x.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(16):
        held[k] = nl.load(w[k * 128:(k + 1) * 128, 0:2048])
    for i in nl.sequential_range(8):
        tile = nl.load(x[i * 128:(i + 1) * 128, 0:2048])
        for k in nl.affine_range(16):
            nl.store(out[i, k, 0:128, 0:8], nl.multiply(tile[0:128, 0:8], held[k, 0:128, 0:8]))
    return out
"""
SUMS = """    for i in nl.affine_range(8):
        tile = nl.load(x[i * 128:(i + 1) * 128, 0:2048])
        for k in nl.static_range(4):
            {made}
            nl.store(out[i * 128:(i + 1) * 128, k:k + 1], total)
    return out
"""
APART = (
    "e = nisa.activation(np.exp, tile, scale=1.0 + k); "
    "total = nisa.tensor_reduce(np.add, e, axis=[1], keepdims=True)"
)
TOGETHER = (
    "total = nl.ndarray((nl.par_dim(128), 1), dtype=np.float32, buffer=nl.sbuf); "
    "e = nisa.activation_reduce(np.exp, tile, reduce_op=np.add, reduce_res=total, scale=1.0 + k)"
)
THROUGH = """    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    for i in nl.affine_range(8):
        nl.store(between[i * 128:(i + 1) * 128, :], nl.exp(nl.load(x[i * 128:(i + 1) * 128, :])))
    for i in nl.affine_range(8):
        nl.store(out[i * 128:(i + 1) * 128, :], nl.exp(nl.load(between[i * 128:(i + 1) * 128, :])))
    return out
"""
KEPT = """    for i in nl.affine_range(8):
        nl.store(out[i * 128:(i + 1) * 128, :], nl.exp(nl.exp(nl.load(x[i * 128:(i + 1) * 128, :]))))
    return out
"""
BUSY = """    for i in nl.affine_range(8):
        tile = nl.load(x[i * 128:(i + 1) * 128, 0:2048])
        for _ in nl.static_range(4):
            tile = nisa.tensor_scalar(tile, np.add, 1.0, engine=nisa.vector_engine)
        {more}
        nl.store(out[i * 128:(i + 1) * 128, 0:2048], tile)
    return out
"""


def simulated(body, shape="x.shape", dtype=np.float32):
    kernel = load(HEAD.format(shape=shape) + body, "advised.py").kernel
    apart = Compiler().less("merge_repeated")  # as the front end of nki, which merges no loads
    return timed(kernel, (1024, 2048), (2048, 2048), dtype=np.dtype(dtype), compiler=apart)


def advised(body, *shape):
    found = simulated(body, *shape)
    return found, advice(found, what_ifs(found), memory_use(found.run.program))


ACTIVATED = """    for i in nl.affine_range(8):
        tile = nl.load(x[i * 128:(i + 1) * 128, 0:2048])
        for _ in nl.static_range(4):
            tile = {made}
        nl.store(out[i * 128:(i + 1) * 128, 0:2048], tile)
    return out
"""
PAIRS = {
    "fill the partitions: 32 of 128": (
        ROWS.format(trips=32, rows=32), ROWS.format(trips=8, rows=128),
    ),
    "move longer pieces": (
        COLUMNS.format(trips=64, columns=32), COLUMNS.format(trips=1, columns=2048),
    ),
    "load w once": (AGAIN, ONCE, "(8, 16, 128, 8)"),
    "add up on its way": (SUMS.format(made=APART), SUMS.format(made=TOGETHER), "(1024, 4)"),
    " on the chip: ": (THROUGH, KEPT),
    "compute silu": [ACTIVATED.format(made=one) for one in
                     ("nl.multiply(tile, nl.sigmoid(tile))", "nl.silu(tile)")],
}  # fmt: skip


@pytest.mark.parametrize("said", PAIRS)
def test_a_mechanism_is_named_with_its_line_and_gone_where_it_is_mended(said):
    before, after, *shape = PAIRS[said]
    found, given = advised(before, *shape)
    mended, then = advised(after, *shape)
    [one] = [a for a in given if said in a.change]
    assert not [a for a in then if said in a.change]
    assert mended.latency_ms < found.latency_ms
    assert one.before_ms == found.latency_ms and one.gain >= UNRESOLVED
    text = (HEAD + before).splitlines()
    assert one.lines and all(
        "nl." in text[line - 1] or "nisa." in text[line - 1] for line in one.lines
    )
    if said in ("fill the partitions: 32 of 128", "load w once", "add up on its way"):
        # The edit does that and little else.
        assert mended.latency_ms == pytest.approx(one.after_ms, rel=4 * UNRESOLVED)


def test_rows_at_numbers_are_as_long_as_they_are():
    """A gather of rows of 128 B; rows of an array that follow each other may come together."""
    rows = """    numbers = nl.load(x[0:128, 0:64], dtype=nl.int32)
    for i in nl.static_range(64):
        tile = nl.load({rows})
        nl.store(out[0:128, i * 32:(i + 1) * 32], tile)
    return out
"""
    told = []
    for place in ("x[numbers[:, i:i + 1], nl.arange(32)[None, :]]", "x[i * 8:i * 8 + 128, 0:32]"):
        text = rows.format(rows=place)
        line = (HEAD + text).splitlines().index(f"        tile = nl.load({place})") + 1
        _, given = advised(text)
        told += [any(line in a.lines for a in given if "move longer pieces" in a.change)]
    assert told == [False, True]


def test_work_goes_to_an_engine_that_has_less_of_it():
    _, given = advised(BUSY.format(more=""))
    [one] = [a for a in given if "to the Scalar engine" in a.change][:1] or [None]
    assert one is not None and "Scalar engine, which works 0% of the time" in one.change


def test_at_most_five_are_listed_the_largest_gain_first_in_80_columns():
    found, given = advised(COLUMNS.format(trips=64, columns=32))
    assert 0 < len(given) <= 5
    assert [a.after_ms for a in given] == sorted(a.after_ms for a in given)
    # One edit changes the load and the store: it is said once (five times of a step of RMSprop).
    assert [len(a.lines) for a in given if "move longer pieces" in a.change] == [2]
    text = advice_text(given)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.splitlines()[1].startswith(
        f" 1. {found.latency_ms:.4g} to {given[0].after_ms:.4g} ms"
    )


def test_a_kernel_that_was_written_is_told_apart_from_an_edit_by_hand():
    found = simulated(ROWS.format(trips=32, rows=32))
    rewrite = Rewrite("write it anew", "def kernel(): pass", found.latency_ms / 3)
    given = advice(found, (), (), rewrite)
    [one] = [a for a in given if a.source]
    assert (one.change, one.after_ms) == ("write it anew", found.latency_ms / 3)
    assert f"{found.latency_ms / 3:.4g} ms written by rule" in advice_text(given)
    assert not [a for a in advice(found, (), (), rewrite._replace(latency_ms=1.0)) if a.source]


PIECES = nki_kernel("""def kernel(x):
    out = nl.ndarray((1024, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    for own in nl.affine_range({rows}):
        i = own{core}
        for j in nl.affine_range(16):
            tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            at = slice(i * 128, (i + 1) * 128), slice(j * 128, (j + 1) * 128)
            nisa.dma_copy(dst=tile, src=x[at]{mode})
            nisa.dma_copy(dst=out[at], src=tile{mode})
    return out
kernel = kernel{launch}
""")


def test_a_ring_of_descriptors_and_one_core_of_two_are_named():
    """What-ifs of a copy in small tiles come to what the kernels take that are written so."""

    def given(rows=8, core="", mode="", launch=""):
        text = PIECES.format(rows=rows, core=core, mode=mode, launch=launch)
        program = trace_kernel(load(text, "pieces.py").kernel, [AbstractTensor((1024, 2048), F32)])
        found = profile(program, TARGETS["trn2"])
        return found, advice(found, what_ifs(found), memory_use(found.run.program))

    _, told = given()
    static = given(mode=", dge_mode=nisa.dge_mode.none")
    halved = given(rows=4, core=" + nl.program_id(0) * 4", launch="[2]")
    for said, (mended, then) in {"wait for its descriptors": static, "two cores": halved}.items():
        [one] = [a for a in told if said in a.change]
        assert not [a for a in then if said in a.change]
        assert mended.latency_ms == pytest.approx(one.after_ms, rel=UNRESOLVED)


def test_where_nothing_gives_anything_that_is_said():
    assert advice_text(()) == "None of the edits that are simulated gives 2% or more alone."


@pytest.mark.parametrize("trips", [1, 2])
def test_a_row_that_goes_to_all_partitions_is_read_once_by_each_transfer(trips):
    """The rows of a selective scan were said to be loaded 256 times, and to fit SBUF at 1/128 of what a
    copy for each partition takes."""
    text = (
        HEAD.format(shape="(256, 128, 2048)")
        + f"""    for i in nl.sequential_range({trips}):
        row = nl.load(w[0:1, 0:2048].broadcast_to((128, 2048)))
        nl.store(out[i, 0:128, 0:2048], nl.multiply(row, 2.0))
    return out
"""
    )
    apart = Compiler(frozenset({"merge_repeated"}))
    found = timed(load(text, f"row_{trips}.py").kernel, (128, 8), (1, 2048), compiler=apart)
    said = advice_text(advice(found, what_ifs(found), memory_use(found.run.program)))
    said = " ".join(said.split())
    assert ("load w once" in said) == (trips > 1)
    assert trips == 1 or ("does it 2 times" in said and "all of it, 8 KiB a partition" in said)
