"""Compiling for a GPU that is not there."""

import pytest
from flb_traces import installed

from accelopt.kernels.gpu.bench.judging.compile_check import CompilerPool

needs_triton = pytest.mark.skipif(
    not installed("torch", "triton"), reason="torch and triton are not installed"
)


@needs_triton
@pytest.mark.slow
def test_resources_failures_and_a_process_that_is_used_again(starter):
    name = "gemm_n4096_k4096"
    definition, workload = starter.definitions[name], starter.workloads[name][0]
    plain = starter.solutions[f"plain_{name}"]
    tiles = "BLOCK_M, BLOCK_N, BLOCK_K = 64, 64, 32"
    with CompilerPool(1) as compilers:
        good = compilers.check(definition, workload, plain)
        assert good.failure == ""
        [kernel] = good.resources
        assert kernel.kernel == "gemm_kernel"
        assert 0 < kernel.shared_bytes < 232448
        assert 0 < kernel.registers <= 255
        [code] = good.code
        assert ".entry gemm_kernel(" in code.ptx and code.blocks > 0
        opcodes = {
            one.opcode
            for place, found in good.source_lines.items()
            if place.file == "main.py"
            for one in found
        }
        assert "ret" in opcodes and opcodes & {"mma", "wgmma"}
        large = plain.main_source.replace(tiles, tiles.replace("64, 64, 32", "256, 256, 128"))
        too_large = compilers.check(definition, workload, plain.with_source(large, "large"))
        assert "shared memory" in too_large.failure
        wrong = plain.main_source.replace("tl.program_id(0)", "tl.program_idx(0)")
        broken = compilers.check(definition, workload, plain.with_source(wrong, "broken"))
        assert "program_idx" in broken.failure
        assert not broken.unknown
        odd = plain.main_source.replace(
            "def run(A, B):", "def run(A, B):\n    assert A.sum() > 1e30"
        )
        unknown = compilers.check(definition, workload, plain.with_source(odd, "odd"))
        assert unknown.unknown
        assert compilers.check(definition, workload, plain).failure == ""
