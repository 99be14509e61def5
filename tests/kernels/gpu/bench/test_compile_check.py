"""Compiling for a GPU that is not there."""

import pytest
from flb_traces import installed

from accelopt.kernels.gpu.bench.judging import compile_check
from accelopt.kernels.gpu.bench.judging.compile_check import CompilerPool
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.kernels.gpu.bench.process.compilation import widest_product
from accelopt.ptx.statements import by_source, read

needs_triton = pytest.mark.skipif(
    not installed("torch", "triton"), reason="torch and triton are not installed"
)


def test_a_compiler_that_is_free_is_used_before_another_is_started(starter, monkeypatch):
    name = "gemm_n4096_k4096"
    definition, workload = starter.definitions[name], starter.workloads[name][0]
    started = []

    class Answers:
        def __init__(self, *_: object, **__: object) -> None:
            started.append(self)

        def ask(self, *_: object) -> say.Compiled:
            return say.Compiled(resources=(), code=())

        def close(self) -> None:
            pass

    monkeypatch.setattr(compile_check, "converse", Answers)
    with CompilerPool(4) as compilers:
        for _ in range(6):
            compilers.check(definition, workload, starter.solutions[f"plain_{name}"])
        with compilers._compiler(), compilers._compiler():
            compilers.check(definition, workload, starter.solutions[f"plain_{name}"])
    assert len(started) == 3


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
            for place, found in by_source(read(code.ptx)).items()
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


@pytest.mark.parametrize(
    ("result", "threads", "registers"),
    [
        ("tensor<256x256xf32, #mma>", 64, 1024),
        ("tensor<128x128xf32, #mma>", 128, 128),
        ("tensor<64x64xf16, #mma>", 128, 16),
    ],
)
def test_registers_of_a_product_are_its_results_among_its_threads(result, threads, registers):
    operands = "tensor<256x16xf16, #a> * tensor<16x256xf16, #b>"
    for operation in ("tt.dot", "ttng.warp_group_dot"):
        line = f"%9 = {operation} %x, %y, %t {{inputPrecision = 0 : i32}} : {operands} -> {result}"
        small = line.replace(result, "tensor<16x16xf32, #mma>")
        assert widest_product(f"{small} loc(#l1)\n{line} loc(#l2)\n", threads) == registers
    assert widest_product("%9 = arith.addf %1, %2 : tensor<256x256xf32, #mma>", threads) == 0
