"""nki.collectives on the ranks of one chip. Evidence for what each computes and takes: the pages of
`nki/api/generated/nki.collectives.*` of SDK 2.33; its price is assumed."""

import numpy as np
import pytest

from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.sim import rules, serial, timing
from accelopt.sim.dialects.nki.kernel import simulate, trace_kernel
from accelopt.sim.errors import KernelError
from accelopt.sim.kernel_loading import load

HEAD = """
import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
group = ncc.ReplicaGroup([[0, 1, 2, 3]])
calls = []

@nki.jit
def kernel({parameters}):
    {checked}
    out = nl.ndarray(({rows}, {columns}), dtype=x.dtype, buffer=nl.shared_hbm)
"""
X = np.random.default_rng(0).standard_normal((4, 32, 64)).astype(np.float32)
PAIRS = "ncc.collective_permute(srcs=[x], dsts=[out], source_target_pairs={})"


def kernel(lines, rows=32, columns=64, checked="assert x.shape == (32, 64)", parameters="x"):
    head = HEAD.format(rows=rows, columns=columns, checked=checked, parameters=parameters)
    body = "".join(f"    {line}\n" for line in (*lines.splitlines(), "return out"))
    return load(head + body, "ranks.py").kernel


def on_chip(call, rows=32, columns=64):
    return (
        "t = nl.load(x)\n"
        f"u = nl.ndarray(({rows}, {columns}), dtype=x.dtype, buffer=nl.sbuf)\n"
        f"{call.replace('[x]', '[t]').replace('[out]', '[u]')}\nnl.store(out, u)"
    )


GATHER = "ncc.all_gather(srcs=[x], dsts=[out], replica_group=group, collective_dim={})"
REDUCE = "ncc.all_reduce(srcs=[x], dsts=[out], replica_group=group, op=nl.add)"
SCATTER = (
    "ncc.reduce_scatter(srcs=[x], dsts=[out], replica_group=group, collective_dim=0, op=nl.add)"
)
ALL = "ncc.all_to_all(srcs=[x], dsts=[out], replica_group=group, collective_dim=0)"
RING = "ncc.collective_permute_implicit{}([[x]], {}[[out]], replica_group=group{})"
TWO = "ncc.ReplicaGroup.from_partition_op(4, ncc.rg_partition_op.mod, 2)"
SWAPPED = X.reshape(4, 4, 8, 64).transpose(1, 0, 2, 3).reshape(4, 32, 64)
COMPUTED = {
    "all_gather": (GATHER.format(0), (128, 64), [X.reshape(128, 64)] * 4),
    "all_gather on-chip": (on_chip(GATHER.format(1), 32, 256), (32, 256), [np.hstack(X)] * 4),
    "all_reduce": (REDUCE, (32, 64), [X.sum(0)] * 4),
    "all_reduce on-chip": (on_chip(REDUCE), (32, 64), [X.sum(0)] * 4),
    "all_reduce of pairs": (REDUCE.replace("group=group", f"group={TWO}"), (32, 64),
                            [X[0] + X[2], X[1] + X[3]] * 2),
    "reduce_scatter": (SCATTER, (8, 64), [*X.sum(0).reshape(4, 8, 64)]),
    "all_to_all": (ALL, (32, 64), [*SWAPPED]),
    "collective_permute": (PAIRS.format([(0, 3), (3, 0), (1, 2), (2, 1)]), (32, 64), [*X[::-1]]),
    "a ring": (RING.format("", "", ""), (32, 64), [X[3], X[0], X[1], X[2]]),
    "a ring that adds": (RING.format("_reduce", "[[x]], ", ", op=nl.add"), (32, 64),
                         [2 * X[3], 2 * X[0], 2 * X[1], 2 * X[2]]),
    "the largest": (REDUCE.replace("add", "maximum"), (32, 64), [X.max(0)] * 4),
    "the smallest on-chip": (on_chip(REDUCE.replace("add", "minimum")), (32, 64), [X.min(0)] * 4),
    "in place": ("y = nl.ndarray((32, 64), dtype=x.dtype, buffer=nl.private_hbm)\nnisa.dma_copy(dst=y, src=x)\n"
                 + REDUCE.replace("[x]", "[y]").replace("[out]", "[y]") + "\nnisa.dma_copy(dst=out, src=y)",
                 (32, 64), [X.sum(0)] * 4),
    "of an access pattern": ("y = nl.ndarray((32, 64), dtype=x.dtype, buffer=nl.private_hbm)\n"
                             "nisa.dma_copy(dst=y, src=x.ap([[64, 32], [1, 64]], offset=0))\n"
                             + REDUCE.replace("[x]", "[y]"), (32, 64), [X.sum(0)] * 4),
    "a ring of two on-chip": (on_chip(RING.format("", "", "").replace("[x]", "[t[:, 0:32]], [t[:, 32:64]]").replace(
        "[out]", "[u[:, 0:32]], [u[:, 32:64]]")), (32, 64), [X[3], X[0], X[1], X[2]]),
    "in a loop": (f"for i in nl.affine_range(3):\n    {REDUCE}", (32, 64), [X.sum(0)] * 4),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTED)
def test_every_rank_has_what_the_page_says(name):
    """Also where a rank is a logical core of two, whose cores do the same."""
    lines, shape, wanted = COMPUTED[name]
    for cores in (1, 2):
        found = simulate(kernel(lines, *shape)[cores])(X)
        assert len(found) == 4
        for own, due in zip(found, wanted):
            np.testing.assert_allclose(own, due, rtol=1e-5, atol=1e-5)


PAIR = """c = nl.program_id(0)
half = nl.ndarray((32, 64), dtype=x.dtype, buffer=nl.shared_hbm)
nl.store(half[nl.ds(16 - 16 * c, 16)], nl.load(x[nl.ds(16 * c, 16)]))
nisa.core_barrier(half, (0, 1))
t, u, v = (nl.ndarray((16, 64), dtype=x.dtype, buffer=nl.sbuf) for n in range(3))
nisa.dma_copy(dst=t, src=half[nl.ds(16 * c, 16)])
ncc.all_reduce(srcs=[t], dsts=[u], replica_group=group, op=nl.add)
nisa.sendrecv(src=u, dst=v, send_to_rank=1 - c, recv_from_rank=1 - c, pipe_id=0)
ncc.all_reduce(srcs=[v], dsts=[t], replica_group=group, op=nl.maximum)
nl.store(out[nl.ds(16 * c, 16)], t)"""


def test_cores_of_a_rank_meet_each_other_between_collectives():
    """LNC 2 (SDK 2.33: a rank is a logical core): each core speaks to its like of other ranks; barriers and
    exchanges are between the two; what both name in HBM is moved once (assumed)."""
    program = trace_kernel(kernel(PAIR, checked="")[2], [X])
    rules.check(program)
    assert timing.profile(program).run.stream.cores == 8
    for own in simulate(kernel(PAIR, checked="")[2])(X):
        np.testing.assert_allclose(own, X.sum(0), rtol=1e-5, atol=1e-5)
    found = []  # nothing of the attempt that took the ranks' parts for one tensor
    whole = "a, b, c = x.shape if len(x.shape) == 3 else (1, *x.shape)\nnl.load(x[0:33] if a > 1 else x)\n"
    trace_kernel(kernel(whole + REDUCE, checked="")[2], [X], report=found.append)
    assert found == []
    one, two = (trace_kernel(kernel(REDUCE)[cores], [X]) for cores in (1, 2))
    moved = [timing.profile(p).summary["hbm_write_bytes"] for p in (one, two)]
    assert moved[0] == moved[1]
    for lines, said in ((PAIR.replace("nisa.core_barrier(half, (0, 1))\n", ""), "no barrier stands between"),
                        (PAIR.replace("nisa.sendrecv", "if c:\n    nisa.sendrecv"),
                         r"core 1 waits for core 0, which (waits for other ranks at ranks.py|has ended)")):  # fmt: skip
        with pytest.raises(KernelError, match=said):
            trace_kernel(kernel(lines, checked="")[2], [X])


AT_ONCE = "ncc.{}(srcs=[x], dsts=[out], replica_group=group, metadata_tensor={})"
SPLIT = (
    AT_ONCE.replace("ncc.{}", "at = ncc.{}_prepare")
    + "\nnisa.dma_copy(dst=counts[2:3], src=counts[0:1])"
)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name, whole", [("all_gather_v", 2048), ("all_to_all_v", 600)])
def test_lengths_that_are_known_when_it_runs(name, whole, cores):
    """all_gather_v, all_to_all_v: rows 0 and 1 are count and displacement in elements, of the first column or of
    the receiver's; what a slot has beyond stays; row 2 becomes what came, unless recv_counts_known. Prepared,
    with metadata in SBUF, it is the same. A window beyond its source is refused when it runs."""
    lines = "nl.store(out, nl.zeros((4, 2048), dtype=x.dtype))\n"
    lines += "came = nl.ndarray((3, 4), dtype=nl.uint32, buffer=nl.shared_hbm)\n"
    counts = np.zeros((4, 3, 4), np.uint32)
    counts[:, :2, 0] = [[5, 3], [0, 7], [whole, 0], [100, 900]]
    counts[:, 0, 1:], counts[:, 1, 1:] = np.arange(12).reshape(4, 3), 9
    wanted, came = np.zeros((4, 4, 2048), np.float32), np.zeros((4, 4), np.uint32)
    for to, rank in np.ndindex(4, 4):
        number, first, _ = counts[rank, :, 0 if name == "all_gather_v" else to]
        wanted[to, rank, :number] = X[rank].reshape(-1)[first : first + number]
        came[to, rank] = number
    for call, returned in (
        (AT_ONCE.format(name, "counts") + "\nnisa.dma_copy(dst=came, src=counts)", "out, came"),
        ("held = nl.load(counts.reshape((1, 3, 4)))\n" + AT_ONCE.format(name, "held") + "\nnisa.dma_copy(dst=came.reshape((1, 3, 4)), src=held)", "out, came"),
        (SPLIT.format(name, "counts, recv_counts_known=True") + f"\nncc.{name}_trigger(at)", "out"),
    ):  # fmt: skip
        text = f"{lines}{call}\nreturn {returned}"
        run = simulate(kernel(text, 4, 2048, "", "x, counts")[cores])
        found = run(X, counts.copy())
        for rank, own in enumerate(found[:: len(found) // 4]):
            np.testing.assert_array_equal(own, wanted[rank])
            assert len(found) == 4 or (found[rank * 2 + 1][2] == came[rank]).all()
    counts[2, :2, 0] = 2048, 1
    with pytest.raises(KernelError, match="2048 elements from 1 on, of 2048 into 2048"):
        run(X, counts)


@pytest.mark.parametrize("op", ["add", "maximum"])
def test_what_ranks_send_in_lengths_is_combined(op):
    """reduce_scatter_v is assumed to be all_to_all_v whose chunks are combined in one slot, all of one length
    (no page of it was to be had; SDK 2.32 says of the runtime's that counts and displacements are metadata)."""
    call = f"reduce_scatter_v([x], [out], group, {{}}, nl.{op})"
    counts = np.zeros((4, 3, 4), np.uint32)
    counts[:, 0], counts[:, 1] = [3, 0, 512, 40], np.arange(16).reshape(4, 4)
    parts = [[X[n].reshape(-1)[d : d + c] for n, d in enumerate(counts[:, 1, to])]
             for to, c in enumerate([3, 0, 512, 40])]  # fmt: skip
    for lines in (f"ncc.{call.format('counts')}", f"ncc.reduce_scatter_v_trigger(ncc.{call.replace('_v', '_v_prepare').format('counts')})"):  # fmt: skip
        lines = f"nl.store(out, nl.zeros((1, 512), dtype=x.dtype))\n{lines}"
        run = simulate(kernel(lines, 1, 512, "", "x, counts"))
        for own, due in zip(run(X, counts.copy()), parts):
            combined = getattr(np, op).reduce(due) if len(due[0]) else due[0]
            np.testing.assert_allclose(own[0, : len(combined)], combined, rtol=1e-5, atol=1e-5)
            assert not own[0, len(combined) :].any()
    counts[2, 0, 2] = 511
    with pytest.raises(KernelError, match="511 elements to combine with 512 of another rank"):
        run(X, counts)


def test_ranks_know_their_number_and_whose_data_they_have():
    lines = "found = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.shared_hbm)\n"
    for at, value in enumerate(("ncc.rank_id() * 10", "ncc.collective_permute_implicit_current_processing_rank_id(1, group)")):  # fmt: skip
        lines += f"nisa.scalar_store(dst=found[:, {at}:{at + 1}], value={value})\n"
    found = simulate(kernel(lines + "return found"))(X)
    assert [one[0].tolist() for one in found] == [[0, 3], [10, 0], [20, 1], [30, 2]]


def test_a_collective_is_timed_as_its_transfers_and_belongs_to_no_algorithm():
    """Four cores, as much HBM traffic as the transfers say, and the assumption told; the same after a trip
    through bytes. What passes between ranks is in no schedule."""
    program = trace_kernel(kernel(REDUCE), [X])
    rules.check(program)
    one, other = (timing.profile(p) for p in (program, serial.loads(serial.dumps(program))))
    assert one.latency_ms == other.latency_ms > timing.profile(trace_kernel(kernel("nl.store(out, nl.load(x))"), [X[0]])).latency_ms  # fmt: skip
    assert one.run.stream.cores == 4 and one.summary["hbm_read_bytes"] >= 4 * X.nbytes
    assert [d.pass_name for d in one.decisions].count("collective") == 1
    with pytest.raises(NotLifted, match="passes elements between ranks"):
        lift(program)


REFUSED = {
    "calls.append(1)\nif len(calls) % 4 == 3:\n    nl.store(out, nl.load(x))\n    return out\n" + REDUCE:
        "rank [0-3] has ended without all_reduce, for which rank",
    f"calls.append(1)\nif len(calls) % 4 == 3:\n    {ALL}\nelse:\n    {REDUCE}":
        "rank [1-3] comes to all_.*, and rank 0 to all_.* at ranks.py:",
    f"calls.append(1)\nn = 16 if len(calls) % 4 == 3 else 32\n{REDUCE.replace('[x]', '[x[0:n]]').replace('[out]', '[out[0:n]]')}":
        "of other operands, and rank",
    GATHER.format(0): r"all_gather over 4 ranks has .*, not \(128, 64\)",
    GATHER.format(1): "collective_dim=1: all_gather of such tensors goes along dimension 0",
    ALL.replace("[x]", "[nl.load(x)]"): "in HBM",
    REDUCE.replace("group=group", "group=[[0, 1, 2, 3]]"): "is no nki.collectives.ReplicaGroup",
    REDUCE.replace("group=group", "group=ncc.ReplicaGroup([[0, 1], [1, 2]])"): "every rank from 0 on once",
    REDUCE.replace("group=group", "group=ncc.ReplicaGroup([range(16)])"): "a replica group of 16 ranks, in a launch of 4",
    PAIRS.format([(0, 1), (2, 1)]): "the same target",
    "ncc.all_gather_v_trigger(None)": "all_gather_v_trigger follows no all_gather_v_prepare",
}  # fmt: skip


@pytest.mark.parametrize("lines", REFUSED)
def test_what_ranks_cannot_do_together_is_one_sentence(lines):
    with pytest.raises(KernelError, match=REFUSED[lines]) as refused:
        trace_kernel(kernel(lines), [X])
    assert refused.value.source.file == "ranks.py"
    found = []  # and where violations are collected, no rank waits for ever
    try:
        trace_kernel(kernel(lines), [X], report=found.append)
    except KernelError as error:
        found.append(error)
    assert found


def test_ranks_are_cores_of_one_chip():
    reduce = kernel(
        REDUCE.replace("group=group", "group=ncc.ReplicaGroup([range(16)])"), checked=""
    )
    with pytest.raises(KernelError, match=r"16 ranks\. A chip of trn2 has 8 cores"):
        trace_kernel(reduce, [np.repeat(X, 4, axis=0)])
    with pytest.raises(KernelError, match=r"16 ranks of 2 cores\. A chip of trn2 has 8 cores"):
        trace_kernel(reduce[2], [np.repeat(X, 4, axis=0)])
