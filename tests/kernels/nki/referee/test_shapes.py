"""A verdict says whether a kernel holds for the shapes that it was asked for, or for others too."""

from pathlib import Path

import numpy as np
import pytest
from kernel_heads import neuronxcc_of
from warm import verdict

from accelopt.evaluation import Status
from accelopt.kernels.nki.referee.variation import other_shapes

REFERENCE = Path(__file__).parents[3] / "hostile" / "references" / "silu.py"  # (256, 512)

KERNEL = neuronxcc_of("x")("""
{check}
for i in nl.affine_range(x.shape[0] // {rows}):
    for j in nl.affine_range(x.shape[1] // {width}):
        at = slice(i * {rows}, (i + 1) * {rows}), slice(j * {width}, (j + 1) * {width})
        nl.store(out[at[0], at[1]], nl.silu(nl.load(x[at[0], at[1]])))
""")


@pytest.mark.parametrize(
    ("check", "rows", "width", "holds_for", "said"),
    [
        ("pass", 128, 128, "any", ""),
        ("pass", 128, 256, "these shapes", "is wrong for (128, 384)"),  # columns stay unwritten
        ("assert x.shape == (256, 512), 'only 256 rows'", 128, 512, "these shapes", "refuses"),
    ],
)
def test_a_winner_says_where_it_holds(tmp_path, check, rows, width, holds_for, said):
    """Issue 15, point 1: a winner at another size left half a million elements unwritten."""
    kernel = KERNEL.format(check=check, rows=rows, width=width)
    evaluation = verdict(tmp_path, kernel, REFERENCE.read_text())
    assert evaluation.status is Status.CORRECT, evaluation.message
    assert evaluation.holds_for == holds_for
    assert said in " ".join(evaluation.notes)
    assert bool(evaluation.notes) == bool(said)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (
            (256, 512),
            "takes none of the others that were tried, (128, 384); (256, 384); (128, 512)",
        ),
        ((128, 128), "none has a dimension from 256 on, and no other was tried"),
    ],
)
def test_of_a_reference_at_one_size_alone_a_kernel_holds_for_that(tmp_path, shape, said):
    """What nobody could try is not claimed."""
    kernel = KERNEL.format(check="pass", rows=128, width=128)
    fixed = f"def transform_to_nki_inputs(inputs):\n    return [inputs[0].reshape{shape}]\n"
    reference = REFERENCE.read_text().replace("(256, 512)", str(shape))
    evaluation = verdict(tmp_path, kernel, reference + fixed)
    assert evaluation.status is Status.CORRECT, evaluation.message
    assert evaluation.holds_for == "these shapes"
    assert [note.endswith(said) for note in evaluation.notes] == [True]


@pytest.mark.parametrize(
    ("shape", "others"),
    [
        ((256, 512), [(128, 384), (256, 384), (128, 512)]),
        ((4096, 2048), [(1920, 896), (1920, 2048), (4096, 896)]),
        ((2048, 10944), [(896, 1984), (2048, 1984), (896, 10944)]),  # 64 beyond whole tiles stay
        ((300, 64), [(172, 64)]),
    ],
)
def test_other_shapes_are_small_and_leave_blocks_the_same_part(shape, others):
    """As one tile less does: of blocks of 1,024 elements 896."""
    found = [np.shape(one) for (one,) in other_shapes([np.empty(shape, np.int8)])]
    assert found == others
