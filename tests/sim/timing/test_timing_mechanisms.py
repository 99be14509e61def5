"""Pairs of kernels that differ in one mechanism: which is faster, and by how much, roughly.

Each test names its evidence: the vendor's documentation at SDK v2.26.1 ("perf guide" is
nki_perf_guide.rst, "arch guide" nki/arch/trainium_inferentia2_arch.rst, "isa" the stubs of nki.isa)
or a published measurement.
"""

from pathlib import Path

import pytest
from timing_kernels import (
    BF16,
    F32,
    accumulate,
    busy_ns,
    column_by_column,
    copy_in_pieces,
    dependent_activations,
    exp_and_sum,
    fresh_buffers,
    half_refilled_buffer,
    independent_activations,
    keep_everything,
    load_rows,
    load_transposed,
    load_twice,
    matmul_with_transpose,
    multiply_tiles,
    net_ns,
    one_buffer,
    pass_over,
    product,
    product_in_two_loops,
    reload_in_loop,
    rows_at_once,
    rows_beside,
    scale_bias_exp,
    scan_by_elements,
    scan_by_instruction,
    scores_and_sums,
    slope_ns,
    store_after_transpose,
    store_transposed,
    sums_at_once,
    through_hbm,
    through_sbuf,
    tiled_vector,
    timed,
    turned_in_two_parts,
    two_engines,
    variances,
    windows_one_by_one,
)

from accelopt.hardware import TRN1, TRN2
from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.timing import Compiler, interval
from accelopt.sim.timing.machine.schedule import TensorClock
from accelopt.sim.timing.machine.transfers import TransferLayout, partition_ns


def ratio(slow, fast) -> float:
    return net_ns(slow) / net_ns(fast)


VECTOR, SCALAR = nisa.vector_engine, nisa.scalar_engine
WIDE = (128, 2048)
PAIRS = {
    # perf guide opt 5a; arch guide: 100 cycles static overhead when N << 128.
    "wide tiles": ((tiled_vector, (128, 4096), 8), (tiled_vector, (128, 4096), 512), 2.0, 1e9),
    # perf guide opt 5b: an instruction on 64 partitions takes the time of one on 128.
    "full partitions": ((rows_at_once, (1024, 512), 64), (rows_at_once, (1024, 512), 128), 1.7, 2.3),
    # arch guide: the reduction costs one ActReadAccumulator of about 64 cycles.
    "a sum in the activation": ((exp_and_sum, WIDE, False), (exp_and_sum, WIDE, True), 1.5, 3.5),
    # perf guide opt 3; moves.md 34.
    "two engines": ((two_engines, WIDE, VECTOR, VECTOR), (two_engines, WIDE, VECTOR, SCALAR), 1.4, 2.1),
    # mamba tutorial: tiny dependent instructions of about 189 ns each; isa: scan 2N.
    "a scan": ((scan_by_elements, (128, 512)), (scan_by_instruction, (128, 512)), 5.0, 1e9),
    # nki-dma-intro-1.jpg: 512 B at .21, 2 KiB at .81, 4 KiB at .97 of the 32 KiB rate.
    "pieces of 512 B": ((copy_in_pieces, (128, 16384), 128), (copy_in_pieces, (128, 16384), 1024), 2.6, 4.4),
    "pieces of 2 KiB": ((copy_in_pieces, (128, 16384), 512), (copy_in_pieces, (128, 16384), 1024), 0.9, 1.5),
    # nki-dma-overview: 8 partitions an engine, so 32 partitions keep 4 of 16 engines busy.
    "all DMA engines": ((load_rows, (4096, 2048), 32), (load_rows, (4096, 2048), 128), 2.5, 4.3),
    # perf guide opt 10: transpose on the Tensor engine rather than in the DMA.
    "a transpose by product": ((store_transposed, WIDE), (store_after_transpose, WIDE), 3.0, 1e9),
    # perf guide opt 4; nki-autotune: single-buffered operands run at a fraction.
    "fresh buffers": ((one_buffer, (128, 32768), False), (fresh_buffers, (128, 32768)), 1.3, 4.0),
}  # fmt: skip
"""A kernel, the same with the mechanism, and from which to which factor the second is faster."""


@pytest.mark.parametrize("name", PAIRS)
def test_a_mechanism_pays(name):
    slow, fast, least, most = PAIRS[name]
    assert least < ratio(timed(*slow), timed(*fast)) < most


class TestInstructions:
    def test_dependent_single_element_activations_are_189_ns_apart(self):
        # perf guide opt 5a, figure 16: 159 ns each, one every 189 ns.
        assert slope_ns(dependent_activations, 10, 60, (128, 1)) == pytest.approx(189, rel=0.08)

    def test_independent_small_instructions_issue_faster_than_they_complete(self):
        # isa: MIN_II of 64 cycles; the 60 that opening an access takes (arch guide) hide in it.
        apart = slope_ns(independent_activations, 10, 110, (128, 128))
        assert apart == pytest.approx(64 / 1.4, rel=0.15)

    def test_affine_loops_of_tiny_instructions_become_wide_ones(self):
        # Issue 5, point 3: seen in measured variants; both outcomes are in the interval.
        wide = timed(column_by_column, (128, 256))
        narrow = timed(
            column_by_column, (128, 256), compiler=Compiler(frozenset({"widen_tiny_loops"}))
        )
        assert wide.summary["vector_engine_instruction_count"] == 2
        assert narrow.summary["vector_engine_instruction_count"] == 512
        assert ratio(narrow, wide) > 5
        assert interval(wide).high_ms == pytest.approx(narrow.latency_ms * TRN1.most_measured)

    def test_windows_in_groups_become_wide_instructions(self):
        # moves.md 28: conv1d in groups of 64 outputs, 4.955 -> 0.461 ms.
        shapes = (128, 2112), (128, 4)
        grouped, single = timed(windows_one_by_one, *shapes), timed(windows_one_by_one, *shapes, 1)
        assert grouped.summary["vector_engine_instruction_count"] == 2 * 2048 // 64
        assert 4 < ratio(single, grouped) < 20

    def test_scale_bias_and_exp_fuse_to_one_third(self):
        # perf guide opt 6: "impl 2 is 3x faster in terms of latency".
        shapes = (128, 16384), (128, 1), (128, 1)
        separate, fused = (timed(scale_bias_exp, *shapes, fused) for fused in (False, True))
        gain = busy_ns(separate, "scalar") / busy_ns(fused, "scalar")
        assert gain == pytest.approx(3.0, rel=0.05)

    def test_vector_and_gpsimd_take_turns_at_sbuf(self):
        # arch guide: they cannot access SBUF in parallel on NeuronCore-v2; lifted on v3.
        vector = nisa.vector_engine
        turns = timed(two_engines, (128, 2048), vector, nisa.gpsimd_engine)
        alone = timed(two_engines, (128, 2048), vector, vector)
        parallel = timed(two_engines, (128, 2048), vector, nisa.gpsimd_engine, target="trn2")
        one = timed(two_engines, (128, 2048), vector, vector, target="trn2")
        assert ratio(alone, turns) < 1.25
        assert ratio(one, parallel) > 1.2


class TestTransfers:
    def test_a_refilled_tile_gets_other_storage_where_iterations_are_independent(self):
        # nl.affine_range: no iteration depends on another, so only the tile's name is shared.
        refilled, fresh = timed(one_buffer, (128, 32768), True), timed(fresh_buffers, (128, 32768))
        assert ratio(refilled, fresh) == pytest.approx(1, abs=0.02)
        assert "rename_refilled" in {decision.pass_name for decision in refilled.decisions}

    @pytest.mark.parametrize("kernel", [(one_buffer, False), (half_refilled_buffer,)])
    def test_a_tile_whose_contents_are_carried_on_stays(self, kernel):
        found = timed(kernel[0], (128, 8192), *kernel[1:])
        assert "rename_refilled" not in {decision.pass_name for decision in found.decisions}

    def test_both_lists_of_buffers_of_a_transfer_cost(self):
        # arch guide: a transfer gathers source buffers and scatters destination buffers; a store
        # whose elements lie apart in HBM alone has half of the entries of one apart on both sides.
        spread = TransferLayout(4, source_run=1, target_run=1, hbm_run=1)
        gathered = TransferLayout(4, source_run=512, target_run=1, hbm_run=1)
        lists = [partition_ns(512, layout, TRN1) for layout in (spread, gathered)]
        assert lists[0] - lists[1] == pytest.approx(511 * TRN1.dma_buffer_ns)

    def test_a_dma_transpose_runs_at_the_documented_part_of_the_rate(self):
        # trainium2_arch.rst: up to 90% of the DMA rate; trn1 goes element by element.
        layout = TransferLayout(2, source_run=1, target_run=128, hbm_run=128, transposed=True)
        assert partition_ns(128, layout, TRN2) == pytest.approx(256 / (0.9 * TRN2.dma_bytes_per_ns))
        assert partition_ns(128, layout, TRN1) > 128 * TRN1.dma_buffer_ns

    def test_fusing_two_passes_saves_the_way_through_hbm(self):
        # perf guide opt 2; moves.md 15: 2.879 -> 1.569 ms.
        apart, fused = timed(through_hbm, (128, 32768)), timed(through_sbuf, (128, 32768))
        assert apart.summary["hbm_read_bytes"] == 2 * fused.summary["hbm_read_bytes"]
        assert 1.4 < ratio(apart, fused) < 2.4

    def test_the_compiler_hoists_an_invariant_load(self):
        # add_rmsnorm_matmul (NKIBench) reads its weights once, not 32 times.
        shapes = (128, 16384), (128, 512)
        merged = timed(reload_in_loop, *shapes)
        literal = timed(reload_in_loop, *shapes, compiler=Compiler(frozenset({"merge_repeated"})))
        assert merged.summary["hbm_read_bytes"] == (16384 + 512) * 128 * 4
        assert literal.summary["hbm_read_bytes"] == 2 * 16384 * 128 * 4
        assert ratio(literal, merged) > 1.2
        decision = next(d for d in merged.decisions if d.pass_name == "merge_repeated")
        assert decision.count == 31
        lines = Path(decision.source.file).read_text().splitlines()
        assert "nl.load(y" in lines[decision.source.line - 1]

    def test_what_sbuf_cannot_hold_is_spilled(self):
        # arch guide: 192 KiB a partition; perf guide opt 2.
        fits, spills = (
            timed(keep_everything, (16, 128, 2048), True),
            timed(keep_everything, (48, 128, 2048), True),
        )
        assert fits.summary["spill_save_bytes"] == 0
        saved = spills.summary["spill_save_bytes"]
        assert (48 - 23) * 128 * 8192 <= saved <= (48 - 19) * 128 * 8192
        assert spills.summary["spill_reload_bytes"] == saved
        assert ratio(spills, fits) > 1.2 * 48 / 16

    def test_loops_become_one_when_sbuf_cannot_hold_what_lies_between(self):
        # swiglu (NKIBench): 384 KiB between two nests, of which the counters show none spilled.
        found = timed(keep_everything, (48, 128, 2048))
        assert found.summary["spill_save_bytes"] == 0
        apart = timed(
            keep_everything, (48, 128, 2048), compiler=Compiler(frozenset({"fuse_loops"}))
        )
        assert apart.summary["spill_save_bytes"] > 0
        small = timed(keep_everything, (16, 128, 2048))
        assert "fuse_loops" not in {decision.pass_name for decision in small.decisions}

    def test_long_passes_over_what_does_not_fit_find_little_of_it(self):
        # lora (NKIBench): 747 of the 768 MiB of partial sums leave and come back in each pass;
        # keeping what fits would bring back 55 of these 96 tiles.
        found = timed(pass_over, (96, 128, 1024), 3)
        assert found.summary["spill_save_bytes"] == 96 * 128 * 4096
        assert found.summary["spill_reload_bytes"] > 0.8 * 3 * 96 * 128 * 4096

    def test_short_passes_keep_what_fits(self):
        # mamba (NKIBench): one of two partial sums stays. Four of these seven tiles fit.
        found = timed(pass_over, (7, 128, 7168), 6)
        tiles = found.summary["spill_reload_bytes"] / (128 * 7168 * 4)
        assert 6 * 3 <= tiles < 6 * 4

    def test_parts_of_a_tile_that_are_wanted_far_apart_move_by_themselves(self):
        # gqa (NKIBench): keys of which each pass takes another slice.
        found = timed(pass_over, (96, 128, 1024), 4, 4)
        assert found.summary["spill_reload_bytes"] <= 96 * 128 * 4096

    def test_loads_in_one_iteration_are_merged_however_far_the_last_iteration_is(self):
        # Issue 5: merged within an iteration, hoisted when not too much lies in between.
        found = timed(load_twice, (128, 8192), (3, 128, 8192))
        assert found.summary["hbm_read_bytes"] == (3 + 3) * 128 * 8192 * 4


class TestRounds:
    """measured/trn1_variants.csv, trn1_tutorials.csv and trn2_kernels.csv, see rounds.py."""

    @staticmethod
    def separated(found):
        return [d for d in found.decisions if d.pass_name == "separate_rounds"]

    @pytest.mark.parametrize(
        ("columns", "kept", "computed", "pieces", "target", "expected"),
        [
            (11_000, 8, False, 1, "trn1", 0),  # 2 x 2 x 43 KiB of 176
            (12_000, 8, False, 1, "trn1", 7),  # 2 x 2 x 46.9
            (12_000, 8, False, 1, "trn2", 0),  # of 208
            (14_000, 8, False, 1, "trn2", 7),
            (8_192, 14_000, True, 1, "trn1", 7),  # 128 KiB beside 55 that were computed
            (8_192, 14_000, False, 1, "trn1", 0),  # that can be loaded again
            (8_192, 10_000, True, 1, "trn1", 0),
            (12_000, 8, False, 4, "trn1", 0),  # loaded piece by piece
        ],
    )
    def test_rounds_whose_tiles_do_not_fit_twice_are_apart(
        self, columns, kept, computed, pieces, target, expected
    ):
        found = timed(rows_beside, (1024, columns), (128, kept), computed, pieces, target=target)
        assert sum(one.count for one in self.separated(found)) == expected

    def test_a_round_apart_is_its_passes_and_its_load(self):
        kernel = rows_beside, (2048, 12_000), (128, 8), False, 1
        found = timed(*kernel)
        together = timed(*kernel, compiler=Compiler(frozenset({"separate_rounds"})))
        load = 128 * 12_000 * 4 / TRN1.dma_peak_bytes_per_ns
        passes = busy_ns(found, "vector") / 16
        assert load + passes < net_ns(found) / 16 < 1.2 * (load + passes)
        assert net_ns(found) > 1.08 * net_ns(together)
        assert any("rounds" in one.question for one in interval(found).scenarios)

    def test_the_decision_says_what_does_not_fit_and_where(self):
        (one,) = self.separated(timed(rows_beside, (1024, 12_000), (128, 8), False, 1))
        assert "two would need 188 KiB of SBUF's 176" in one.action
        assert one.source.file.endswith("timing_kernels.py")


class TestTensorEngine:
    def test_bf16_is_nearly_four_times_faster(self):
        # isa: fp32 costs four times max(min(64, N_stationary), N_moving).
        fp32 = slope_ns(multiply_tiles, 8, 40, (128, 128), (128, 512))
        bf16 = slope_ns(multiply_tiles, 8, 40, (128, 128), (128, 512), dtype=BF16)
        assert 3.5 < fp32 / bf16 < 4.3

    def test_fp32_tile_takes_839_ns(self):
        # transpose_matmul (NKIBench): PE-bound at 839 ns a 128x128x512 product.
        apart = slope_ns(multiply_tiles, 8, 40, (128, 128), (128, 512))
        assert apart == pytest.approx(839, rel=0.03)

    def test_the_short_operand_should_move(self):
        # perf guide opt 7: about 64 cycles against about 128.
        moving = slope_ns(multiply_tiles, 8, 72, (128, 128), (128, 4), dtype=BF16)
        stationary = slope_ns(multiply_tiles, 8, 72, (128, 4), (128, 128), dtype=BF16)
        assert 1.1 < stationary / moving < 2.2

    def test_psum_accumulates_for_free(self):
        # moves.md 22: .538 -> .435 ms; arch guide: near-memory accumulation.
        shapes = (64, 128, 128), (64, 128, 512)
        psum, sbuf = (timed(accumulate, *shapes, in_psum) for in_psum in (True, False))
        assert psum.summary["vector_engine_active_time"] == 0
        assert sbuf.summary["vector_engine_active_time"] > 64 * 512 / 1.12e9
        assert ratio(sbuf, psum) >= 1.0

    def test_transposes_cost_tensor_engine_time(self):
        # perf guide opt 8: layout chosen so that nothing is transposed.
        turned = timed(matmul_with_transpose, (128, 4096), (4096, 512))
        straight = timed(matmul_with_transpose, (4096, 128), (4096, 512), False)
        assert turned.summary["transpose_flops"] == 32 * 2 * 2 * 128**3
        assert straight.summary["transpose_flops"] == 0
        gap = busy_ns(turned, "tensor") - busy_ns(straight, "tensor")
        assert gap == pytest.approx(32 * 290, rel=0.02)  # 290 ns each: gqa, lora (NKIBench)


class TestVariance:
    def test_a_variance_is_no_single_pass(self):
        """Layernorms with nl.var took 2.95 and 2.97 ms where one with the mean of squares took 2.46
        (trn1_variants.csv)."""
        library, by_hand = (timed(variances, (1024, 4096), flag) for flag in (False, True))
        assert busy_ns(library, "vector") == pytest.approx(busy_ns(by_hand, "vector"), rel=0.05)
        assert busy_ns(library, "scalar") > 1.8 * busy_ns(by_hand, "scalar")


class TestTrn2:
    """Rates of the seven problems that were measured on trn2 (accelopt/measured/trn2_kernels.csv)."""

    @pytest.mark.parametrize(
        ("wanted", "running", "times"),
        [
            ("result", False, 1),
            ("sum", False, 1),
            ("result sum", False, 2),
            ("result sum", True, 1),
        ],
    )
    def test_two_results_of_an_activation_are_made_from_the_loads_on(self, wanted, running, times):
        """gqa_full_v7b counts all products of the scores, all exponentials and the loads of q and k
        twice; v7a, which sums the exponentials itself, once. Of running sums nothing is known."""
        shapes = (8, 128, 128), (128, 512)
        found = timed(
            scores_and_sums, *shapes, wanted, running, target="trn2", compiler=Compiler.of("2.26")
        )
        older = timed(scores_and_sums, *shapes, wanted, running, target="trn2")
        operands = 4 * (8 * 128 * 128 + 128 * 512)
        assert older.summary["hbm_read_bytes"] == operands
        assert found.summary["hbm_read_bytes"] == times * operands
        assert found.summary["hardware_flops"] == times * older.summary["hardware_flops"]
        assert found.summary["hbm_write_bytes"] == older.summary["hbm_write_bytes"]
        once = busy_ns(older, "scalar")
        assert times * once * 0.8 <= busy_ns(found, "scalar") <= times * once

    def test_only_a_product_with_the_identity_is_a_transpose(self):
        """bmm counts one instruction a transpose and two a product; what the source says of a
        product does not make it cheaper."""
        plain, said = (
            timed(product, (128, 128), (128, 512), flag, target="trn2") for flag in (False, True)
        )
        assert busy_ns(said, "tensor") == busy_ns(plain, "tensor")

    def test_both_engines_empty_psum(self):
        """bmm's Vector and Scalar engine count as many instructions each; trn1's Vector engine none."""
        for target, both in (("trn1", False), ("trn2", True)):
            found = timed(sums_at_once, (2, 128, 128), (2, 128, 512), 8, target=target)
            assert (busy_ns(found, "vector") > 0) == both

    def test_fp32_is_transposed_by_products_while_it_is_loaded(self):
        """bmm_v2_d2_loadtranspose counts the instructions of bmm_v2 on trn2, and takes its 2.035 ms;
        trn1's compiler lets DMA do it, and DMA transposes 16 bits on trn2 (nisa.dma_transpose)."""
        newer = Compiler.of("2.26")
        for dtype, same in ((F32, True), (BF16, False)):
            loaded, by_hand = (
                timed(
                    load_transposed, (128, 2048), hand, target="trn2", compiler=newer, dtype=dtype
                )
                for hand in (False, True)
            )
            assert (busy_ns(loaded, "tensor") == pytest.approx(busy_ns(by_hand, "tensor"))) == same
            assert (busy_ns(loaded, "tensor") > 0) == same
        older = timed(load_transposed, (128, 2048), False)
        assert busy_ns(older, "tensor") == 0

    def test_rounds_in_multiples_of_16_hide_the_latency_of_their_transfers(self):
        """adamw_v1 and its chunks of 1,152, 1,536 and 2,304 numbers (86 to 152 rounds) lose 1.6 to
        1.7 us a round on trn2, those of 96 to 304 rounds in multiples of 16 lose none, and neither
        does NKIBench's adamw of 86 on trn1. Documents say nothing of it: the interval has both."""
        asked = "transfers of every loop run on from round to round"
        for target, version, lost in (("trn1", "2.21", 0.0), ("trn2", "2.26", 1.5)):
            compiler = Compiler.of(version)
            more, whole, broken = (
                timed(copy_in_pieces, (128, n * 768), 768, target=target, compiler=compiler)
                for n in (80, 64, 63)
            )
            smooth_ms = whole.latency_ms - (more.latency_ms - whole.latency_ms) / 16
            found = (broken.latency_ms - smooth_ms) / 63
            assert found == pytest.approx(1e-3 * lost, rel=0.25, abs=5e-5)
            questions = [one.question for one in interval(broken, compiler).scenarios]
            assert (asked in questions) == (target == "trn2")

    def test_rows_that_begin_between_64_bytes_take_longer(self):
        """adamw's chunks of 684 numbers (2,736 B) keep trn2's DMA engines busy for 12 ns a row more
        than the line through those of 576 to 1,824."""
        aligned, between = (
            busy_ns(timed(load_rows, (1024, width), 8, target="trn2"), "dma")
            for width in (688, 684)
        )
        assert between - aligned == pytest.approx(1024 * (12.0 - 4 * 4 / 27.2), rel=0.01)

    def test_products_of_few_rows_run_at_half_rate(self):
        """Neuron Explorer, understanding throttling: on trn2 the Tensor engine runs at half its rate
        while less than half of it is used; bmm_v1's products of 64 rows take 1,706 ns where those of
        128 take 864. trn1 knows no such limit."""
        for target, factor in (("trn1", 1.0), ("trn2", 2.0)):
            few, all_rows = (
                slope_ns(multiply_tiles, 32, 96, (rows, 128), (rows, 512), target=target)
                for rows in (64, 128)
            )
            assert few == pytest.approx(factor * all_rows, rel=0.03)

    def test_a_throttled_tensor_engine_is_explained(self):
        for rows, told in ((64, True), (128, False)):
            found = timed(multiply_tiles, (rows, 128), (rows, 512), 500, target="trn2")
            assert told == any(d.pass_name == "throttle_tensor" for d in found.decisions)

    def test_the_tensor_engine_warms_up_and_cools_down(self):
        """Same document: it starts at half its rate, is at the full one after some microseconds of
        full use, and back at half after as long an idle time."""
        clock = TensorClock(TRN2)
        assert clock.run(0.0, 100.0, 1.0) == 200.0
        at = 200.0
        while clock.run(at, 100.0, 1.0) - at > 100.0:
            at += 200.0
        assert at < 2 * TRN2.tensor_ramp_ns
        at += 100.0
        assert clock.run(at, 100.0, 1.0) == at + 100.0
        later = at + 100.0 + TRN2.tensor_ramp_ns
        assert clock.run(later, 100.0, 1.0) == later + 200.0

    def test_a_burst_of_full_use_is_remembered_for_a_while(self):
        """bmm's versions (trn2_kernels.csv) transpose 32, 64, 128, 16, 8 or 1 tiles at a time before 8
        times as many products of half the rows, and take 4.1, 5.2, 5.8, 6.2, 7.0 and 7.7 ms."""

        def slow(burst: int) -> int:
            clock, at, found = TensorClock(TRN2), 0.0, 0
            for _ in range(512 // burst):
                for _ in range(burst):
                    at = clock.run(at, 112.0, 1.0)
                for _ in range(8 * burst):
                    before, at = at, clock.run(at, 864.0, 0.5)
                    found += at - before > 864.0
            return found

        counts = [slow(burst) for burst in (32, 64, 128, 16, 8, 1)]
        assert counts == sorted(counts)
        assert counts[0] < counts[-1] / 2

    def test_work_stays_in_a_loop_past_one_that_changes_it(self):
        """mamba_v3 multiplies the same two tiles for each of 16 states, in a loop over channels inside
        of that over states, and takes 15% longer than mamba_v4, which multiplies them before
        (trn2_kernels.csv); trn1's compiler did so by itself (mamba, NKIBench)."""
        shapes = (2, 128, 512), (2, 128, 512), (128, 16)
        for version, times in (("2.21", 2), ("2.26", 2 * 16)):
            found = timed(product_in_two_loops, *shapes, compiler=Compiler.of(version))
            assert found.summary["vector_engine_instruction_count"] == times

    def test_all_that_reads_transposed_tiles_in_psum_is_as_wide_as_their_copy(self):
        """gqa_full_v8: 16,384 subtractions from transposed tiles, 7,320 Vector engine instructions."""
        found = timed(turned_in_two_parts, (128, 2048))
        assert found.summary["vector_engine_instruction_count"] == 4
        assert found.summary["scalar_engine_instruction_count"] == 4
