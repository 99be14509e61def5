"""The kernels that come with us to be tuned: every point is a solution; what compiles is within limits."""

import random

import pytest

from accelopt.cli.tune import tune
from accelopt.errors import ConfigError
from accelopt.kernels.gpu.bench.source.source_rules import violations
from accelopt.kernels.gpu.cases import ProblemFiles
from accelopt.kernels.triton.shipped_kernels import SCHEMAS, schema_of, shipped_case, solution_text


def test_the_matmul_has_324_points_and_each_is_a_solution(tmp_path):
    assert SCHEMAS["matmul"].space("matmul").size == 324
    for name, schema in SCHEMAS.items():
        files = ProblemFiles(shipped_case(name, {}, tmp_path / name).values)
        space = schema.space(name)
        assert files.template.main_source == solution_text(name, space.default)
        for point in random.Random(0).sample([*space.points()], 12):
            text = solution_text(name, point)
            assert schema_of(text) == name and not violations(files.solution(text))
            for knob, value in point.items():
                assert f"    {knob} = {value}\n" in text
    assert schema_of("# Knobs: nothing\n") == schema_of("import torch\n") == ""


def test_sizes_are_those_asked_for_and_others_are_one_sentence(tmp_path):
    files = ProblemFiles(shipped_case("matmul", {"M": 64}, tmp_path).values)
    assert files.workload.workload.axes == {"M": 64, "N": 2048, "K": 2048}
    with pytest.raises(ConfigError, match="matmul has no axis 'Q', but M, N, K"):
        shipped_case("matmul", {"Q": 64}, tmp_path)
    with pytest.raises(ConfigError, match="--shape is for kernels that come with us"):
        tune(tmp_path / "kernel.py", shape="M=64", out=tmp_path / "out")


def test_24_configurations_are_refused_for_their_shared_memory_and_nothing_else(tmp_path):
    """Compiled for sm_90 without a GPU; shared bytes are the compiler's own."""
    pytest.importorskip("triton.language")
    from accelopt.kernels.gpu.bench.judging.compile_check import CompilerPool

    files = ProblemFiles(shipped_case("matmul", {}, tmp_path).values)
    points = random.Random(1).sample([*SCHEMAS["matmul"].space("matmul").points()], 23)
    largest = {"block_m": 256, "block_n": 256, "block_k": 64, "num_warps": 8, "num_stages": 4}
    pool = CompilerPool(2)
    try:
        for point in [*points, largest]:
            solution = files.solution(solution_text("matmul", point))
            found = pool.check(files.definition, files.workload, solution)
            assert found.resources, found.failure
            too_much = found.resources[0].shared_bytes > pool.target.block_shared_bytes
            assert bool(found.failure) == too_much and not found.unknown
        wide = {"block_m": 256, "block_n": 256, "block_k": 16, "num_warps": 2, "num_stages": 2}
        found = pool.check(
            files.definition, files.workload, files.solution(solution_text("matmul", wide))
        )
        # 65,536 sums among 64 threads: known without compiling them for minutes.
        assert found.resources[0].registers == 1024 and found.spilled_bytes == 4 * (1024 - 255)
        assert found.resources[0].shared_bytes == 16384
        found = pool.check(
            files.definition, files.workload, files.solution(solution_text("matmul", largest))
        )
    finally:
        pool.close()
    assert "bytes of shared memory" in found.failure
