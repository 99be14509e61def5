"""Masks and run-time indices: what is not selected is neither read nor written (S11, S12, S21)."""

import numpy as np
import pytest
from compute_programs import (
    affine,
    axis,
    copy_in,
    hbm,
    instruction,
    loop,
    loop_variable,
    normal,
    plane,
    program,
    tensor,
    tile,
)
from one_road import execute

from accelopt.sim.access import Indirect
from accelopt.sim.affine import Affine
from accelopt.sim.errors import KernelIndexError
from accelopt.sim.mask import Mask
from accelopt.sim.program import Buffer


def test_causal_load_does_not_read_outside_of_the_tensor() -> None:
    """Row r reads columns 0..r of a row-major triangle whose later rows would run off the end."""
    source, result = hbm((1, 136)), hbm((16, 16))
    triangle = tile(source, 0, (0, 16))
    # Row r starts at 8r: the last rows reach past element 136 where the mask does not hold.
    diagonal = type(triangle)(source, (16, 16), (), Affine(), (8, 1), source.dtype, (), Mask())
    t = tensor((16, 16), fill=0.0)
    mask = Mask((axis(-2, 16) * 8 * -1 - axis(-1, 16) + 135, axis(-2, 16) - axis(-1, 16)))
    body = [copy_in(tile(t), diagonal, mask=mask), copy_in(tile(result), tile(t))]
    data = normal(1, 136)
    (found,) = execute(program([source], [result], body, [t, result]), [data])
    for row in range(16):
        for column in range(16):
            inside = column <= row and 8 * row + column <= 135
            assert found[row, column] == (data[0, 8 * row + column] if inside else 0)


def test_operand_masks_narrow_contraction_rows_and_columns() -> None:
    left, right, result = hbm((16, 8)), hbm((16, 24)), hbm((8, 24))
    a, b = tensor((16, 8)), tensor((16, 24))
    out = tensor((8, 24), buffer=Buffer.PSUM, fill=0.0)
    stationary = tile(a, mask=Mask((axis(-2, 16) * -1 + 9, axis(-1, 8) * -1 + 4)))  # K < 10, M < 5
    moving = tile(b, mask=Mask((axis(-2, 16) * -1 + 9, axis(-1, 24) * -1 + 16)))  # K < 10, N < 17
    body = [
        copy_in(tile(a), tile(left)), copy_in(tile(b), tile(right)),
        instruction("matmul", tile(out), {"stationary": stationary, "moving": moving}),
        copy_in(tile(result), tile(out)),
    ]  # fmt: skip
    x, y = normal(16, 8), normal(16, 24)
    x[10:], x[:, 5:] = np.nan, np.nan
    (found,) = execute(program([left, right], [result], body, [a, b, out, result]), [x, y])
    expected = np.zeros((8, 24), np.float32)
    expected[:5, :17] = x[:10, :5].T @ y[:10, :17]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_masked_loop_reduce_starts_from_the_identity() -> None:
    source, result = hbm((4, 8, 8)), hbm((8, 8))
    i = loop_variable(4)
    t, out = tensor((8, 8)), tensor((8, 8))
    mask = Mask((axis(-2, 8) - affine(i),))  # row r takes part in iterations 0..r
    body = [
        copy_in(tile(t), plane(source, affine(i) * 64, (8, 8))),
        instruction("loop_reduce", tile(out), {"data": tile(t)}, mask=mask, op="maximum",
                    loops=(i.id,)),
    ]  # fmt: skip
    nodes = [loop(i, body, [t]), copy_in(tile(result), tile(out))]
    data = normal(4, 8, 8)
    (found,) = execute(program([source], [result], nodes, [out, result]), [data])
    expected = [data[: row + 1, row].max(axis=0) for row in range(8)]
    np.testing.assert_array_equal(found, expected)


def _indexed_rows(data_shape, index_values, count):
    source, numbers = hbm(data_shape), hbm((count, 1), np.int32)
    index = tensor((count, 1), np.int32)
    rows = Indirect(tile(index), data_shape[1], data_shape[0])
    access = tile(source, (0, count))
    access = type(access)(
        source, (count, data_shape[1]), (), Affine(), (0, 1), source.dtype, (rows,)
    )
    values = np.asarray(index_values, np.int32).reshape(count, 1)
    return source, numbers, index, access, values


@pytest.mark.parametrize("wrong", [32, 33, -1])
def test_index_out_of_bounds_names_the_flat_element_and_the_size(wrong: int) -> None:
    source, numbers, index, rows, values = _indexed_rows((32, 6), [5, 0, wrong, 5], 4)
    t, result = tensor((4, 6)), hbm((4, 6))
    body = [
        copy_in(tile(index), tile(numbers)),
        copy_in(tile(t), rows),
        copy_in(tile(result), tile(t)),
    ]
    kernel = program([source, numbers], [result], body, [index, t, result])
    with pytest.raises(IndexError) as caught:
        execute(kernel, [normal(32, 6), values])
    assert type(caught.value) is IndexError
    assert str(caught.value) == f"index {wrong * 6} is out of bounds for axis 0 with size 192"
    assert isinstance(caught.value.__cause__, KernelIndexError)
    assert caught.value.__cause__.source.line == 7


def test_oob_mode_skip_leaves_rows_as_they_are() -> None:
    source, numbers, index, rows, values = _indexed_rows((32, 6), [5, 99, -3, 7], 4)
    t, result = tensor((4, 6), fill=-1.0), hbm((4, 6))
    body = [
        copy_in(tile(index), tile(numbers)),
        copy_in(tile(t), rows, oob_mode="skip"),
        copy_in(tile(result), tile(t)),
    ]
    data = normal(32, 6)
    kernel = program([source, numbers], [result], body, [index, t, result])
    (found,) = execute(kernel, [data, values])
    np.testing.assert_array_equal(found, [data[5], [-1] * 6, [-1] * 6, data[7]])


def test_indirect_store_accumulates_duplicates() -> None:
    target, numbers, index, rows, values = _indexed_rows((8, 6), [3, 1, 3, 0], 4)
    source, t = hbm((4, 6)), tensor((4, 6))
    start = tensor((8, 6))
    body = [
        copy_in(tile(index), tile(numbers)), copy_in(tile(t), tile(source)),
        instruction("memset", tile(start), value=1.0), copy_in(tile(target), tile(start)),
        copy_in(rows, tile(t), accumulate="add"),
    ]  # fmt: skip
    data = normal(4, 6)
    kernel = program([numbers, source], [target], body, [index, t, start, target])
    (found,) = execute(kernel, [values, data])
    expected = np.ones((8, 6), np.float32)
    np.add.at(expected, values[:, 0], data)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_run_time_offset_into_free_elements() -> None:
    """tensor_copy_dynamic_src: column offsets[i] of every partition."""
    source, offsets, result = hbm((8, 32)), hbm((1, 5), np.int32), hbm((8, 5))
    t, o, out = tensor((8, 32)), tensor((1, 5), np.int32), tensor((8, 5))
    i = loop_variable(5)
    column = tile(t, (0, 8), (0, 1))
    moved = type(column)(
        t, (8, 1), (), Affine(), (32, 1), t.dtype, (Indirect(tile(o, 0, affine(i)), 1, 32),)
    )
    nodes = [
        copy_in(tile(t), tile(source)), copy_in(tile(o), tile(offsets)),
        loop(i, [instruction("copy", tile(out, (0, 8), affine(i)), {"data": moved})]),
        copy_in(tile(result), tile(out)),
    ]  # fmt: skip
    data, places = normal(8, 32), np.array([[4, 31, 0, 7, 7]], np.int32)
    kernel = program([source, offsets], [result], nodes, [t, o, out, result])
    (found,) = execute(kernel, [data, places])
    np.testing.assert_array_equal(found, data[:, places[0]])
