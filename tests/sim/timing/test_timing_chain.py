"""Each step of the chain from Program to counters, by itself."""

import cProfile
import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
import timing_kernels as kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_kernels import F32, timed

from accelopt.hardware import TRN1, TRN2, TRN3
from accelopt.hardware.front_ends import FRONT_ENDS
from accelopt.sim.affine import Affine, LoopVariable, TileAxis, variable
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.errors import KernelError
from accelopt.sim.mask import Mask
from accelopt.sim.timing import Compiler, latencies, profile
from accelopt.sim.timing.account.counters import union_length
from accelopt.sim.timing.compiler import lowering
from accelopt.sim.timing.compiler.passes import PASSES
from accelopt.sim.timing.compiler_constants import COMPILER_BOUNDS, COMPILERS, default_compiler
from accelopt.sim.timing.machine.dependence import depend
from accelopt.sim.timing.machine.pricing import price
from accelopt.sim.timing.machine.transfers import price_transfers
from accelopt.sim.timing.stream import cells, expansion
from accelopt.sim.timing.stream.extents import masked_extent
from accelopt.sim.timing.stream.operation import Decisions, Queue
from accelopt.sim.trace import AbstractTensor


def program_of(kernel, *shapes):
    return trace_kernel(
        kernel, [AbstractTensor(s, F32) if isinstance(s, tuple) else s for s in shapes]
    )


class TestExpansion:
    def test_positions_are_program_order(self):
        program = program_of(kernels.nested, (128, 64))
        nest = lowering.lower(program)
        found = expansion.expand(nest)
        positions = np.sort(np.concatenate([item.positions for item in found]))
        assert positions.tolist() == list(range(positions.size))
        by_position = {
            int(p): (item.operation.source.line, tuple(row))
            for item in found
            for p, row in zip(item.positions, item.iterations)
        }
        walked = [by_position[p] for p in range(len(by_position))]
        expected = []

        def visit(node, prefix):
            trips = node.loop.variable.trips if node.loop else 1
            for i in range(trips):
                here = (*prefix, i) if node.loop else prefix
                for child in node.body:
                    if isinstance(child, type(node)):
                        visit(child, here)
                    else:
                        expected.append((child.source.line, here))

        visit(nest, ())
        assert walked == expected

    @settings(max_examples=100)
    @given(
        st.lists(
            st.tuples(
                st.integers(-40, 40), st.integers(-9, 9), st.integers(-3, 3), st.integers(-3, 3)
            ),
            min_size=1,
            max_size=4,
        )
    )
    def test_masked_extent_counts_what_all_conditions_leave(self, conditions):
        loop, shape = LoopVariable(1, 0, 1, 5), (8, 6)
        terms = loop, TileAxis(-2, 8), TileAxis(-1, 6)
        mask = Mask(
            tuple(
                sum((variable(t) * c for t, c in zip(terms, factors)), Affine(constant))
                for constant, *factors in conditions
            )
        )
        found = masked_extent(mask, shape, {loop: np.arange(5)}, 5)
        for trip in range(5):
            points = [
                (p, f)
                for p, f in itertools.product(range(8), range(6))
                if all(c + t * trip + a * p + b * f >= 0 for c, t, a, b in conditions)
            ]
            rows = {p for p, _ in points}
            assert found.partitions[trip] == len(rows)
            assert found.columns[trip] == len({f for _, f in points})
            assert found.moved[trip] == -(-len(points) // max(len(rows), 1))


class TestForms:
    def test_what_python_unrolls_has_few_forms(self):
        found = {}
        for count in (5, 50):
            nest = lowering.lower(program_of(kernels.dependent_activations, (128, 512), count))
            found[count] = len({item.form for item in expansion.expand(nest)})
        assert found[5] == found[50] == 3  # load, activation, store

    @pytest.mark.parametrize(
        ("kernel", "shapes"),
        [
            (kernels.nested, [(128, 64)]),
            (kernels.matmul_with_transpose, [(128, 1024), (1024, 512)]),
            (kernels.independent_activations, [(128, 512), 6]),
            (kernels.uneven_pieces, [(128, 356)]),
            (kernels.masked_copy, [(300, 512)]),
            (kernels.spread_row, [(128, 512), (1, 512)]),
        ],
    )
    def test_a_form_costs_what_each_of_its_operations_costs(self, kernel, shapes):
        nest = lowering.broadcast_partitions(
            lowering.lower(program_of(kernel, *shapes)), Decisions()
        )
        for item in expansion.expand(nest):
            assert price(item.form, TRN1) == price(item.operation, TRN1)
            assert item.form.opcode == item.operation.opcode
            for mine, theirs in zip(item.form.reads, item.operation.reads, strict=True):
                assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)

    def test_other_numbers_are_another_form(self):
        nest = lowering.lower(program_of(kernels.independent_activations, (128, 512), 6))
        scaled = [i for i in expansion.expand(nest) if i.operation.opcode == "activation"]
        assert len({item.form for item in scaled}) == len(scaled) == 6  # each has its own scale


class TestCells:
    def test_cells_of_uneven_pieces_are_of_one_size(self):
        nest = lowering.lower(program_of(kernels.uneven_pieces, (128, 356)))
        stream = cells.stream(expansion.expand(nest), expansion.scopes(nest))
        first, second = stream.writes[:2]
        assert (len(first), len(second)) == (25, 64)  # of four elements each
        assert stream.reads[2] == first + second
        graph = depend(stream, TRN1, COMPILER_BOUNDS)
        assert graph.successors[:2] == [[2], [2]]

    @settings(max_examples=30)
    @given(st.sampled_from([128, 256, 384, 512]), st.integers(1, 4))
    def test_a_reader_waits_for_exactly_the_writers_of_its_piece(self, width, pieces):
        program = program_of(kernels.copy_in_pieces, (128, width * pieces), width)
        nest = lowering.lower(program)
        stream = cells.stream(expansion.expand(nest), expansion.scopes(nest))
        graph = depend(stream, TRN1, COMPILER_BOUNDS)
        stores = [
            at for at, kind in enumerate(stream.kind) if stream.instances[kind].operation.is_store
        ]
        for at in stores:
            waited_for = [b for b in range(at) if at in graph.successors[b]]
            assert waited_for == [at - 1]

    def test_hbm_keeps_its_order_through_an_intermediate(self):
        found = timed(kernels.through_hbm, (128, 4096))
        stream, timeline = found.run.stream, found.run.timeline
        written = {}
        for at, kind in enumerate(stream.kind):
            operation = stream.instances[kind].operation
            if operation.is_dma and operation.is_store:
                for cell in stream.writes[at]:
                    written[cell] = at
            elif operation.is_dma:
                for cell in stream.reads[at]:
                    assert timeline.start[at] >= timeline.done[written[cell]]
        assert written


class TestSchedule:
    @pytest.mark.parametrize(
        ("kernel", "shapes"),
        [
            (kernels.fresh_buffers, [(128, 8192)]),
            (kernels.matmul_with_transpose, [(128, 1024), (1024, 512)]),
            (kernels.keep_everything, [(40, 128, 2048)]),
            (kernels.keep_everything, [(40, 128, 2048), True]),
            (kernels.sum_of_scaled, [(128, 4096)]),
        ],
    )
    def test_nothing_starts_early_and_engines_do_one_thing_at_a_time(self, kernel, shapes):
        found = timed(kernel, *shapes)
        stream, timeline = found.run.stream, found.run.timeline
        graph = depend(
            stream, TRN1, COMPILER_BOUNDS, spilled=frozenset({0} if found.spills else ())
        )
        for at, later in enumerate(graph.successors):
            for other in later:
                assert timeline.start[other] >= timeline.done[at]
        for queue in (Queue.TENSOR, Queue.VECTOR, Queue.SCALAR, Queue.GPSIMD):
            mine = sorted(
                (timeline.start[at], timeline.free[at])
                for at in range(len(stream))
                if timeline.queue[at] == queue
            )
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(mine))

    def test_transfers_never_exceed_what_the_engines_can_move(self):
        found = timed(kernels.fresh_buffers, (128, 65536))
        moved = found.true_counts.hbm_read_bytes + found.true_counts.hbm_write_bytes
        assert moved / (found.latency_ms * 1e6) <= TRN1.dma_peak_bytes_per_ns

    def test_the_same_program_gives_the_same_timeline(self):
        program = program_of(kernels.matmul_with_transpose, (128, 1024), (1024, 512))
        first, second = profile(program), profile(program)
        assert first.run.timeline == second.run.timeline
        assert first.summary == second.summary

    def test_cost_grows_linearly_with_instructions(self):
        """Cost in calls of functions, which no other program on the machine changes."""
        calls = []
        for columns in (1024 * 100, 1024 * 400):
            program = program_of(kernels.fresh_buffers, (128, columns))
            counted = cProfile.Profile()
            counted.runcall(profile, program)
            calls.append(sum(entry.callcount for entry in counted.getstats()))
        assert calls[0] < calls[1] < 4 * 1.5 * calls[0]


NKI_ONLY = frozenset({"merge_loads", "load_in_time"})
"""Switched off in `test_nki_front_end.py`."""


DECIDED = (
    (kernels.column_by_column, (128, 64)),
    (kernels.spread_row, (128, 512), (1, 512)),
    (kernels.scores_and_maximum, (128, 128), (128, 512)),
    (kernels.sum_of_scaled, (128, 4096)),
    (kernels.reload_in_loop, (128, 4096), (128, 512)),
    (kernels.matmul_with_transpose, (128, 1024), (1024, 512)),
    (kernels.keep_everything, (40, 128, 2048)),
    (kernels.keep_everything, (40, 128, 2048), True),
    (kernels.one_buffer, (128, 4096), True),
    (kernels.sums_at_once, (2, 128, 128), (2, 128, 512), 12),
    (kernels.variances, (256, 512), False),
    (kernels.load_transposed, (128, 512), False),
    (kernels.scores_and_sums, (4, 128, 128), (128, 512), "result sum", False),
    (kernels.windows, (128, 64), (128, 3), 64, False, False),
)
"""Kernels of which each pass decides something."""


@functools.cache
def decided(case, target, version, without=""):
    """The passes that decide something of a kernel, of a version's or of all but one."""
    compiler = Compiler.of(version).less(without) if without else Compiler.of(version)
    return {one.pass_name for one in timed(*case, target=target, compiler=compiler).decisions}


class TestCompilerEmulation:
    @pytest.mark.parametrize("name", [one.name for one in PASSES if one.name not in NKI_ONLY])
    def test_every_pass_can_be_switched_off(self, name):
        newer = name in ("drain_transfers", "transpose_loads", "make_results_apart")
        target = "trn2" if newer or name == "balance_copies" else "trn1"
        version = "2.26" if newer else "2.21"
        seen = set()
        for case in DECIDED:
            seen |= decided(case, target, version)
            assert name not in decided(case, target, version, name)
        if name != "remove_dead":
            assert name in seen

    def test_a_compiler_has_a_name(self):
        assert [*COMPILERS] == [*FRONT_ENDS]
        assert Compiler.of("2.21") == Compiler()
        assert (
            default_compiler("trn2", "neuronxcc") == default_compiler("trn3", "neuronxcc") == "2.26"
        )
        assert timed(kernels.fresh_buffers, (128, 8192)).compiler == "2.21"
        newer = timed(kernels.fresh_buffers, (128, 8192), compiler=Compiler.of("2.26"))
        assert newer.compiler == "2.26"
        with pytest.raises(ValueError, match=r"--compiler 2\.30: there are 2\.21 .*, 0\.6 "):
            Compiler.of("2.30")

    def test_a_front_end_takes_its_own_dialect_only(self):
        """Assumption: no release compiles both packages (dialect.py)."""
        program = program_of(kernels.fresh_buffers, (128, 8192))
        with pytest.raises(KernelError, match="6 takes kernels of nki, and this"):
            Compiler.for_program(program, TRN1, "0.6")

    @pytest.mark.parametrize(
        ("kernel", "shapes"),
        [(kernels.fresh_buffers, [(128, 8192)]), (kernels.keep_everything, [(40, 128, 2048)])],
    )
    def test_a_kernel_compiled_once_takes_on_other_cores_what_it_takes_there(self, kernel, shapes):
        program = program_of(kernel, *shapes)
        slower = replace(TRN1, dma_bytes_per_ns=9.0, access_cycles=90.0)
        alone = [profile(program, core).latency_ms for core in (TRN1, slower)]
        assert list(latencies(program, [TRN1, slower])) == alone
        assert alone[1] > 1.1 * alone[0]

    def test_a_name_of_no_pass_is_refused(self):
        with pytest.raises(ValueError, match="no pass of the compiler is called fold_loops"):
            Compiler(frozenset({"fold_loops"}))

    def test_sums_that_stay_in_the_engine_are_neither_dead_nor_merged(self):
        found = timed(kernels.exp_summed_in_the_engine, (128, 2048))
        assert found.summary["scalar_engine_instruction_count"] == 4

    def test_work_is_not_merged_across_sibling_loops(self):
        # Issue 5: hoisted when invariant, merged within an iteration, not across siblings.
        found = timed(
            kernels.squared_twice, (128, 2048), compiler=Compiler(frozenset({"remove_dead"}))
        )
        assert found.summary["scalar_engine_instruction_count"] == 2 * 4

    def test_invariant_work_leaves_its_loop_also_beside_a_sibling_that_does_the_same(self):
        found = timed(kernels.squared_in_siblings, (128, 2048))
        assert found.summary["scalar_engine_instruction_count"] == 2 * 4

    def test_decisions_name_source_lines(self):
        found = timed(kernels.reload_in_loop, (128, 4096), (128, 512))
        assert all(d.source.line > 0 and d.source.file.endswith(".py") for d in found.decisions)

    def test_scaled_results_go_to_psum_for_the_addition(self):
        # adamw (NKIBench): its six two-tensor instructions take eight N.
        on = timed(kernels.sum_of_scaled, (128, 8192))
        off = timed(
            kernels.sum_of_scaled, (128, 8192), compiler=Compiler(frozenset({"place_in_psum"}))
        )
        assert on.summary["psum_write_bytes"] == 8192 * 4
        saved = off.summary["vector_engine_active_time"] - on.summary["vector_engine_active_time"]
        assert saved * 1e9 == pytest.approx(8192 * 1.11 / 1.12, rel=0.1)

    def test_a_copy_is_not_read_from_a_bank_that_was_filled_again(self):
        found = timed(kernels.refilled_bank, (128, 128), (128, 512))
        assert "read_psum_directly" not in {d.pass_name for d in found.decisions}

    def test_a_row_is_spread_once_by_the_tensor_engine(self):
        # add_rmsnorm_matmul (NKIBench): one broadcast of g, counted with one row and one pass.
        found = timed(kernels.spread_row, (128, 4096), (1, 512))
        assert found.summary["hardware_flops"] == 2 * 128 * 512

    def test_four_transposes_leave_psum_in_one_copy(self):
        on = timed(kernels.matmul_with_transpose, (128, 1024), (1024, 512))
        assert on.summary["scalar_engine_instruction_count"] == 8 // 4 + 1

    def test_sbuf_is_never_overfull(self):
        found = timed(kernels.keep_everything, (48, 128, 2048))
        stream = found.run.stream
        last = {}
        for at in range(len(stream)):
            for cell in (*stream.reads[at], *stream.writes[at]):
                last[stream.cell_unit[cell]] = at
        live: dict[int, int] = {}
        for at in range(len(stream)):
            for cell in (*stream.reads[at], *stream.writes[at]):
                unit = stream.cell_unit[cell]
                live[unit] = stream.units[unit].bytes
            assert sum(live.values()) <= TRN1.sbuf_usable_bytes
            for unit in [u for u in live if last[u] == at]:
                del live[unit]

    def test_placed_blocks_share_their_addresses(self):
        # nki_direct_allocation_guide.rst: blocks i and i + num_free_tiles are the same memory.
        one, four = (
            timed(kernels.modulo_buffers, (128, 32768), 1),
            timed(kernels.modulo_buffers, (128, 32768), 4),
        )
        assert one.latency_ms > 1.3 * four.latency_ms


class TestCounters:
    def test_flops_count_fp32_twice_as_the_profiler_does(self):
        found = timed(kernels.matmul_with_transpose, (128, 1024), (1024, 512))
        useful = 2 * 128 * 1024 * 512
        assert found.true_counts.flops == useful
        assert found.summary["hardware_flops"] - found.summary["transpose_flops"] == 2 * useful

    def test_ratio_and_intensity_follow_their_definitions(self):
        found = timed(kernels.matmul_with_transpose, (128, 1024), (1024, 512))
        fields = found.summary
        assert fields["peak_flops_bandwidth_ratio"] == pytest.approx(223.781463973542)
        moved = fields["hbm_read_bytes"] + fields["hbm_write_bytes"]
        work = fields["hardware_flops"] - fields["transpose_flops"]
        assert fields["mm_arithmetic_intensity"] == pytest.approx(work / moved)
        rate = fields["hardware_flops"] / (found.latency_ms * 1e-3) / 91.75e12
        assert fields["hfu_estimated_percent"] == pytest.approx(rate, rel=1e-3)

    def test_identity_is_read_once(self):
        found = timed(kernels.matmul_with_transpose, (128, 1024), (1024, 512))
        assert found.summary["hbm_read_bytes"] == (128 + 512) * 1024 * 4 + 128 * 128 * 4

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12))
    def test_union_length(self, intervals):
        covered = {t for start, length in intervals for t in range(start, start + length)}
        start = np.array([s for s, _ in intervals], dtype=float)
        end = np.array([s + n for s, n in intervals], dtype=float)
        assert union_length(start, end) == len(covered)


class TestHardware:
    def test_generations_say_what_was_measured(self):
        assert "several sources" in TRN2.calibration
        assert "nothing was measured" in TRN3.calibration
        found = timed(kernels.fresh_buffers, (128, 8192), target="trn2")
        assert found.target == "trn2" and found.calibration == TRN2.calibration

    def test_prices_of_transfers_follow_their_descriptors(self):
        program = program_of(kernels.copy_in_pieces, (128, 2048), 1024)
        nest = lowering.lower(program)
        stream = cells.stream(expansion.expand(nest), expansion.scopes(nest))
        for cost in price_transfers(stream, TRN1, COMPILER_BOUNDS):
            assert cost is not None
            assert cost.descriptors == 128 and cost.engines == 16
            # matmul (NKIBench) sustains 263 GB/s with descriptors of 4 KiB.
            assert 16 * 8 * 4096 / cost.engine_ns == pytest.approx(263, rel=0.01)


class TestExplanation:
    def test_an_input_that_every_iteration_reads_again_is_named(self):
        compiler = Compiler(frozenset({"merge_repeated"}))
        found = timed(kernels.reload_in_loop, (128, 4096), (128, 512), compiler=compiler)
        again = [(one.size, one.times) for one in found.reads if one.times > 1]
        assert again == [(128 * 512 * 4, 8)]

    def test_each_byte_read_once_is_one_time(self):
        assert [one.times for one in timed(kernels.fresh_buffers, (128, 8192)).reads] == [1]
