"""The first three problems written in other styles, which the simulated core must also accept."""

from pathlib import Path

import pytest
from nkibench_problems import assert_agrees, reference, run, tolerance

VARIANTS: dict[str, dict[str, int]] = {
    "silu_mgrid_masked": {"M": 256, "N": 1000},
    "silu_block_dims": {"M": 384, "N": 520},
    "silu_spmd": {"M": 1024, "N": 300},
    "silu_helpers_3d": {"M": 384, "N": 512},
    "rmsnorm_matmul_resident_weight": {"M": 256, "N": 1024, "K": 384},
    "rmsnorm_matmul_masked": {"M": 256, "N": 700, "K": 256},
    "rmsnorm_matmul_spmd": {"M": 256, "N": 1024, "K": 256},
    "rmsnorm_matmul_fused_square": {"M": 256, "N": 1024, "K": 256},
    "matmul_blocked": {"M": 512, "N": 2048, "K": 256},
    "matmul_masked": {"M": 256, "N": 500, "K": 384},
    "matmul_identity_transpose": {"M": 256, "N": 1024, "K": 384},
    "matmul_spmd_partial_sums": {"M": 384, "N": 512, "K": 512},
}
FOLDER = Path(__file__).parent / "variants"
PROBLEMS = ("rmsnorm_matmul", "silu", "matmul")


def test_every_variant_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(VARIANTS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant(variant: str) -> None:
    problem = next(problem for problem in PROBLEMS if variant.startswith(problem))
    task = reference(problem, VARIANTS[variant])
    assert_agrees(*run(task, FOLDER / f"{variant}.py"), tolerance(problem))
