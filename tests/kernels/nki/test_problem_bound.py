"""One bound of a problem: the same for all its kernels, and below the time of each.

Evidence: arithmetic on what problems define; rates as the table of hardware has them, documents' peaks."""

import sys
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from kernel_heads import function_of, neuronxcc_kernel, numpy_reference

from accelopt import measured
from accelopt.algorithm.ir import Algorithm
from accelopt.algorithm.least_work import least_work
from accelopt.hardware import TARGETS
from accelopt.hardware.least_time import least_time
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.devices.simulated import TRACING, SimulatedDevice
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.problem_bound import problem_bound
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.sandbox import ForkServer
from accelopt.sim import standin
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.errors import KernelError
from accelopt.sim.kernel_loading import load
from accelopt.sim.timing import profile
from accelopt.sim.trace import AbstractTensor
from accelopt.stages.roofline_standings import SIZES, nkibench_work

HERE = Path(__file__).resolve()
sys.path += [str(HERE.parents[2]), str(HERE.parents[2] / "nkibench"), str(HERE.with_name("lift"))]
sys.path.append(str(HERE.parents[3] / "benchmarks"))
import algorithms as written  # noqa: E402
import exhibits  # noqa: E402
import nkibench_problems as nkibench  # noqa: E402
from timing_corpus import corpus  # noqa: E402

standin.install(always=True)

HEAD = "import numpy as np\n" + neuronxcc_kernel("")


def bounds(program):
    """The bound on every target, each checked against the prediction there."""
    found = [problem_bound(program, spec) for spec in TARGETS.values()]
    for bound, spec in zip(found, TARGETS.values(), strict=True):
        assert 0 < bound.latency_ms < profile(program, spec).latency_ms, (bound, program.name)
    return found


def traced(text, *shapes, dtype=np.float32):
    kernel = load(HEAD + text, "bounded.py").kernel
    return trace_kernel(kernel, [AbstractTensor(shape, np.dtype(dtype)) for shape in shapes])


def test_nothing_that_others_measured_is_below_its_bound():
    """Times of trn2_public.csv: of each problem the shortest, against the bound of one of its kernels."""
    shortest, programs = defaultdict(list), {}
    for one in corpus("trn2", []):
        if one.programs:
            shortest[one.versions_of].append(one.figures["latency"])
            programs.setdefault(one.versions_of, one.programs)
    assert len(programs) >= 10
    for problem, made in programs.items():
        least = sum(problem_bound(program, TARGETS["trn2"]).latency_ms for program in made())
        assert least < min(shortest[problem])


@pytest.mark.parametrize("problem", sorted(nkibench.SMALL))
def test_no_baseline_of_nkibench_is_predicted_below_its_bound(problem):
    task = nkibench.reference(problem, nkibench.SMALL[problem])
    arguments = [
        AbstractTensor(value.shape, value.dtype) if isinstance(value, np.ndarray) else value
        for value in task.transform_to_nki_inputs(task.get_inputs())
    ]
    program = trace_kernel(nkibench.load(nkibench.files(problem)[1]).kernel, arguments)
    assert not any(bound.unlifted for bound in bounds(program))


def test_the_work_of_nkibench_in_the_measured_table_is_that_of_its_baselines():
    for row in measured.rows("trn1_nkibench"):
        problem = SIZES.sub("", row["case_name"])
        kernel = nkibench.load(nkibench.files(problem)[1]).kernel
        assert least_work(lift(trace_kernel(kernel, nkibench.full_size(problem)))) == nkibench_work(
            row
        )


@pytest.mark.slow
def test_no_kernel_of_the_museum_is_below_its_bound_and_honest_ones_have_the_same():
    numbers = defaultdict(set)
    with closing(ForkServer(TRACING)) as server:
        device = SimulatedDevice("trn1", start=server.start)
        for name in exhibits.names():
            header = exhibits.header(name)
            if header["verdict"] not in ("correct", "wrong_numbers"):
                continue  # refused, or comes to no end
            problem = Reference(exhibits.reference_file(name))
            arguments = [argument_of(v) for v in problem.kernel_inputs(problem.inputs(0))]
            try:
                program = device.compile(str(exhibits.kernel_file(name)), arguments).program
                found = bounds(program)
            except (KernelFailure, KernelError):
                continue
            if header["verdict"] == "correct":
                numbers[header["reference"]].add(tuple(bound.latency_ms for bound in found))
    assert len(numbers) > 10
    assert all(len(found) == 1 for found in numbers.values()), numbers


TILES = function_of("x, w", shape="(x.shape[0], w.shape[1])")("""
for i in nl.affine_range(x.shape[0] // 128):
    rows = nl.load(x[i * 128:(i + 1) * 128, :])
    for j in nl.affine_range(w.shape[1] // 512):
        total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(x.shape[1] // 128):
            turned = nl.copy(nisa.nc_transpose(rows[:, k * 128:(k + 1) * 128]){cast})
            part = nl.load(w[k * 128:(k + 1) * 128, j * 512:(j + 1) * 512]{cast})
            total += nisa.nc_matmul(turned, part)
        nl.store(out[i * 128:(i + 1) * 128, j * 512:(j + 1) * 512], total)
""")
CAUSAL = function_of("q, k, v")("""
keys = nl.load_transpose2d(k)
values = nl.load(v.reshape((4, 128, 64))[0]){pad}
for i in nl.static_range(4):
    blocks = {blocks}
    seen = blocks * 128
    scores = nl.ndarray((128, seen), nl.float32)
    turned = nl.load_transpose2d(q[i * 128:(i + 1) * 128, :])
    for j in nl.static_range(blocks):
        scores[:, j * 128:(j + 1) * 128] = nisa.nc_matmul(turned, keys[:, j * 128:(j + 1) * 128])
    p, f = nl.arange(128)[:, None], nl.arange(seen)[None, :]
    masked = nisa.affine_select(pred=(i * 128 + p >= f), on_true_tile=scores[p, f], on_false_value=-1e30)
    weights = nl.exp(masked - nl.max(masked, axis=1, keepdims=True))
    total = nl.zeros((128, 64), nl.float32, buffer=nl.psum)
    for j in nl.static_range(blocks):
        part = nl.copy(nisa.nc_transpose(weights[:, j * 128:(j + 1) * 128]))
        total += nisa.nc_matmul(part, nl.load(v[j * 128:(j + 1) * 128, :]))
    nl.store(out[i * 128:(i + 1) * 128, :], total / nl.sum(weights, axis=1, keepdims=True))
""")
VERSIONS = {
    "the format of products": (
        [TILES.replace("{cast}", ""), TILES.replace("{cast}", ", dtype=nl.bfloat16")],
        ((256, 256), (256, 1024)),
        2 * 256 * 256 * 1024,
    ),
    "masked blocks that are left out": (
        [CAUSAL.replace("{pad}", "").replace("{blocks}", n) for n in ("4", "i + 1")],
        ((512, 64), (512, 64), (512, 64)),
        4 * 64 * 512 * 513 // 2,  # keys that no query sees are not needed
    ),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_versions_of_one_problem_have_one_bound_and_the_faster_is_nearer_to_it(name):
    texts, shapes, flops = VERSIONS[name]
    programs = [traced(text, *shapes) for text in texts]
    one, other = (bounds(program) for program in programs)
    assert [b.least for b in one] == [b.least for b in other]
    products = one[0].least.mm * 1e6 * TARGETS["trn1"].matmul_limit
    assert 0.4 * flops < products <= flops * (1 + 1e-9)  # of blocks treated apart only some count
    slow, fast = (profile(program).latency_ms for program in programs)
    assert fast < slow and one[0].least.fraction(fast) > one[0].least.fraction(slow)


def test_a_gather_reads_a_row_for_each_number():
    """Not the whole table. That no two numbers are alike is an assumption."""
    text = function_of("table, at", shape="(128, table.shape[1])")("""
rows = nl.load(at)
nl.store(out, nl.load(table[rows, nl.arange(table.shape[1])[None, :]]))
""")
    kernel = load(HEAD + text, "gathered.py").kernel
    arguments = [
        AbstractTensor((4096, 512), np.dtype(np.float32)),
        AbstractTensor((128, 1), np.dtype(np.int32)),
    ]
    bound = bounds(trace_kernel(kernel, arguments))[0]
    moved = (2 * 128 * 512 + 128) * 4
    assert bound.latency_ms * 1e6 == pytest.approx(moved / TARGETS["trn1"].hbm_limit)
    assert "from what the kernel computes: bytes" in bound.sentence(1.0)


def test_the_reference_says_the_bound_of_a_kernel_that_does_not_lift(tmp_path):
    """Found on a paged decode whose mask is a constant array, and on blocks of which lifting took 60 s: a bound of the
    outputs alone."""
    path = tmp_path / "reference.py"
    path.write_text(numpy_reference("np.abs(a)", a=(128, 512)))
    text = function_of()("""
bits = nl.load(a).view(nl.int32)
nl.store(out, nl.bitwise_and(bits, 0x7FFFFFFF).view(nl.float32))
""")
    program, spec = traced(text, (128, 512)), TARGETS["trn1"]
    alone, bound = problem_bound(program, spec), problem_bound(program, spec, path)
    assert alone.unlifted and not bound.unlifted
    assert bound.latency_ms == pytest.approx(2 * alone.latency_ms)
    assert "from what the reference computes: bytes" in bound.sentence(1.0)


def flops(algorithm: Algorithm) -> int:
    return least_work(algorithm).narrow_flops


class TestWork:
    def test_products_conditions_and_recurrences(self):
        assert flops(written.matmul(256, 384, 512)) == 2 * 256 * 384 * 512
        assert flops(written.swiglu(128, 256, 512)) == 6 * 128 * 256 * 512
        assert flops(written.attention(256, 2, 64)) == 4 * 4 * 256 * 256 * 64
        work = least_work(written.state_space(128, 64, 16))
        assert dict(work.columns).popitem()[1] == 64 * 16

    def test_bytes_are_of_elements_that_decide(self):
        work = least_work(written.rope(128, 64))
        assert (work.read_bytes, work.write_bytes) == (2 * 128 * 64 * 4, 128 * 64 * 4)
        banded = least_work(written.banded(256, 256))  # each element of either, not both
        assert banded.read_bytes == 256 * 256 * 4

    def test_the_order_of_multiplication_is_the_cheapest(self):
        """q (k^T v) for (q k^T) v, and x (w + a b) for x w + (x a) b: both orders have one number."""
        sizes, inputs = {"q": 512, "n": 512, "d": 64, "e": 64}, dict.fromkeys("qkv", (512, 64))
        orders = (
            ("part[q, n] = add[d](q[q, d] * k[n, d])", "out[q, e] = add[n](part[q, n] * v[n, e])"),
            ("part[d, e] = add[n](k[n, d] * v[n, e])", "out[q, e] = add[d](part[d, e] * q[q, d])"),
        )
        found = [flops(written.written("linear", sizes, inputs, *lines)) for lines in orders]
        assert found == [4 * 512 * 64 * 64] * 2
        apart = written.lora(256, 512, 512, 16)
        shapes = {array.name: array.shape for array in apart.inputs}
        merged = written.written(
            "merged", {"m": 256, "k": 512, "w": 512, "r": 16}, shapes,
            "low[k, w] = add[r](a[k, r] * b[r, w])",
            "out[m, w] = add[k](x[m, k] * (w[k, w] + low[k, w]))",
        )  # fmt: skip
        assert flops(apart) == flops(merged) == 2 * 256 * 512 * (512 + 16)

    def test_two_cores_share_the_work_and_one_stack_of_hbm(self):
        """nki.isa.core_barrier of SDK 2.32: they share HBM; each has its engines, of DMA too."""
        spec = TARGETS["trn2"]
        work = least_work(written.softmax(4096, 2048))._replace(narrow_flops=10**9)
        one, two = (least_time(work._replace(cores=n), spec) for n in (1, 2))
        assert (two.mm, two.vec) == (one.mm / 2, one.vec / 2)
        assert two.memory == (work.read_bytes + work.write_bytes) / spec.hbm_limit * 1e-6
        assert one.memory / 2 < two.memory < one.memory
