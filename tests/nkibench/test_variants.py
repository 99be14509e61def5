"""A problem of NKIBench written in another style, which the simulated core must also accept."""

from pathlib import Path

from nkibench_problems import assert_agrees, reference, run, tolerance


def test_programs_of_a_grid_that_add_up_partial_sums() -> None:
    kernel = Path(__file__).with_name("matmul_spmd_partial_sums.py")
    task = reference("matmul", {"M": 384, "N": 512, "K": 512})
    assert_agrees(*run(task, kernel), tolerance("matmul"))
