"""Storage: shared blocks, fresh memory, accumulation groups, and threads, none of which may be
noticed in results."""

import math
import tracemalloc

import numpy as np
import pytest
from compute_programs import (
    Indirect,
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
from one_road import executable, execute

from accelopt.errors import InternalError
from accelopt.sim.affine import Affine
from accelopt.sim.compute import compile_program
from accelopt.sim.compute.analysis.other_formats import in_double
from accelopt.sim.compute.analysis.parallel import independent
from accelopt.sim.compute.analysis.storage import Storage, plan
from accelopt.sim.compute.analysis.uses import uses_by_tensor
from accelopt.sim.errors import KernelValueError
from accelopt.sim.mask import Mask
from accelopt.sim.program import Buffer, LoopKind


def layout_of(kernel, wanted):
    return plan(kernel, uses_by_tensor(kernel))[wanted]


def square_by_blocks(blocks: int, rows: int = 128, columns: int = 64):
    """One block an iteration, declared outside of the loop, as compiler dumps do."""
    source, result = hbm((blocks * rows, columns)), hbm((blocks * rows, columns))
    i = loop_variable(blocks)
    t = tensor((blocks, rows, columns), blocks=1)
    out = tensor((blocks, rows, columns), blocks=1)
    body = [
        copy_in(tile(t, i), tile(source, (affine(i) * rows, rows))),
        instruction("activation", tile(out, i), {"data": tile(t, i)}, op="square", scale=1.0),
        copy_in(tile(result, (affine(i) * rows, rows)), tile(out, i)),
    ]
    return program([source], [result], [loop(i, body)], [t, out, result]), t


def test_gigabytes_of_declared_blocks_are_never_allocated() -> None:
    """Two tensors of 4 GiB of logical SBUF."""
    kernel, t = square_by_blocks(16384, columns=512)
    assert math.prod(t.shape) * 4 == 1 << 32
    layouts = plan(kernel, uses_by_tensor(kernel))
    on_chip = sum(layout.size for tensor_, layout in layouts.items() if tensor_.buffer.on_chip)
    assert on_chip == 2 * 128 * 512 * 4


@pytest.mark.parametrize(("buffer", "dtype"), [(Buffer.SBUF, np.float32), (Buffer.SBUF, np.int16)])
def test_fresh_memory_is_poison(buffer: Buffer, dtype) -> None:
    """Only the upper half is written; the lower reads as NaN, or as 0xA5A5."""
    source, result = hbm((8, 4), dtype), hbm((8, 4), dtype)
    t = tensor((8, 4), dtype, buffer)
    i = loop_variable(2)
    body = [copy_in(tile(t, (0, 4)), tile(source, (0, 4))), copy_in(tile(result), tile(t))]
    kernel = program([source], [result], [loop(i, body, [t])], [result])
    found = execute(kernel, [np.ones((8, 4), dtype)])[0]
    assert (found[:4] == 1).all()
    rest = found[4:]
    assert (
        np.isnan(rest).all() if rest.dtype.kind == "f" else (rest.view(np.uint16) == 0xA5A5).all()
    )


def test_masked_writes_and_equally_masked_reads_need_no_fill() -> None:
    kernel, t = _masked_copy(299)
    assert layout_of(kernel, t).fill is None
    wider, t = _masked_copy(280)
    fill = layout_of(wider, t).fill
    assert fill is not None and math.isnan(fill)


def _masked_copy(last_written: int):
    source, result = hbm((300, 8)), hbm((300, 8))
    i = loop_variable(3)
    t = tensor((3, 128, 8), blocks=1)
    rows = affine(i) * 128
    masks = [Mask((rows * -1 - axis(-2, 128) + last,)) for last in (last_written, 299)]
    body = [
        copy_in(tile(t, i), tile(source, (rows, 128)), mask=masks[0]),
        copy_in(tile(result, (rows, 128)), tile(t, i), mask=masks[1]),
    ]
    return program([source], [result], [loop(i, body)], [t, result]), t


@pytest.mark.parametrize("fill", [None, 0.0])
@pytest.mark.parametrize("place", ["inside", "blocks", "outside"])
def test_accumulation_groups_start_over(fill: float | None, place: str) -> None:
    """psum[...] += stationary.T @ moving: declared in the loop, or with a block an iteration, or
    one bare tile outside that is reset by a plain write (S15)."""
    left, right, result = hbm((96, 16)), hbm((96, 24)), hbm((3 * 16, 24))
    i, k = loop_variable(3), loop_variable(4)
    a, b, out = tensor((24, 16)), tensor((24, 24)), tensor((16, 24))
    blocks = (3,) if place == "blocks" else ()
    psum = tensor((*blocks, 16, 24), buffer=Buffer.PSUM, blocks=len(blocks), fill=fill)
    target = tile(psum, i) if blocks else tile(psum)
    inner = [
        copy_in(tile(a), tile(left, (affine(k) * 24, 24))),
        copy_in(tile(b), tile(right, (affine(k) * 24, 24))),
        instruction("matmul", target, {"stationary": tile(a), "moving": tile(b)}, accumulate=True),
    ]
    body = [
        *([instruction("memset", target, value=0.0)] if place == "outside" else []),
        loop(k, inner, [a, b]),
        instruction("copy", tile(out), {"data": target}),
        copy_in(tile(result, (affine(i) * 16, 16)), tile(out)),
    ]
    own = [out, psum] if place == "inside" else [out]
    outside = [result] if place == "inside" else [psum, result]
    kernel = program([left, right], [result], [loop(i, body, own)], outside)
    x, y = normal(96, 16), normal(96, 24)
    found = execute(kernel, [x, y])[0]
    np.testing.assert_allclose(found, np.tile(x.T @ y, (3, 1)), rtol=1e-4, atol=1e-5)


def running_total(kind: LoopKind):
    """result[i] = total of x[0..i]: iterations depend on each other."""
    source, result = hbm((32, 1, 4)), hbm((32, 1, 4))
    i = loop_variable(32)
    x, total = tensor((1, 4)), tensor((1, 4), fill=0.0)
    body = [
        copy_in(tile(x), plane(source, affine(i) * 4, (1, 4))),
        instruction(
            "tensor_tensor", tile(total), {"data1": tile(total), "data2": tile(x)}, op="add"
        ),
        copy_in(plane(result, affine(i) * 4, (1, 4)), tile(total)),
    ]
    return program([source], [result], [loop(i, body, [x], kind)], [total, result])


def test_shuffled_order_reveals_hidden_dependences_of_affine_loops_only() -> None:
    data = normal(32, 1, 4)
    expected = np.cumsum(data, axis=0)
    for kind, same in ((LoopKind.AFFINE, False), (LoopKind.SEQUENTIAL, True)):
        kernel = running_total(kind)
        np.testing.assert_allclose(execute(kernel, [data])[0], expected, rtol=1e-4, atol=1e-5)
        shuffled = execute(kernel, [data], order="shuffled", seed=2)[0]
        assert np.allclose(shuffled, expected, rtol=1e-4, atol=1e-5) is same


def test_only_loops_whose_iterations_stay_apart_are_split() -> None:
    for kernel, apart in ((square_by_blocks(8)[0], True), (running_total(LoopKind.AFFINE), False)):
        uses = uses_by_tensor(kernel)
        outer = kernel.body[0]
        assert independent(outer, (), uses, plan(kernel, uses)) is apart


@pytest.mark.parametrize("accessed", ["buffer", "pointer"])
def test_storage_without_memory_is_our_fault_and_says_where(accessed: str) -> None:
    """NumPy takes None for "make memory of your own", and 0 for an address."""
    kernel, t = square_by_blocks(2)
    held = Storage(layout_of(kernel, t))
    with pytest.raises(InternalError, match=f"'{t.name}', declared at .*, has no memory"):
        getattr(held, accessed)
    held.allocate()
    assert getattr(held, accessed) is not None
    held.release()
    with pytest.raises(InternalError):
        getattr(held, accessed)


def test_constants_that_a_program_writes_are_its_own_each_time() -> None:
    """A Program is a value: running it changes nothing in it."""
    constant, result, t = hbm((8, 4), data=np.ones((8, 4), np.float32)), hbm((8, 4)), tensor((8, 4))
    body = [
        copy_in(tile(t), tile(constant)),
        instruction("tensor_scalar", tile(t), {"data": tile(t)}, op0="add", operand0=1.0),
        copy_in(tile(constant), tile(t)),
        copy_in(tile(result), tile(t)),
    ]
    compiled = executable(program([], [result], body, [constant, result, t]))
    for _ in range(2):
        assert (compiled.run([])[0] == 2).all()
    assert (constant.data == 1).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_registers_that_are_read_after_a_loop_hold_its_last_iteration(threads: int) -> None:
    """`reduce_cmd.reduce` goes on with what the engine's registers hold (SDK 2.26.1, nisa.activation):
    after a loop that resets them in each iteration, its last one's sum."""
    x, result = hbm((7, 8, 4)), hbm((8, 1))
    t, total, i = tensor((8, 4)), tensor((8, 1)), loop_variable(7)
    last = tensor((8, 4))

    def summed(source, command: str, outputs=None):
        attributes = {"op": "copy", "reduce_op": "add", "reduce_cmd": command}
        return instruction("activation", tile(t), {"data": source}, outputs=outputs, **attributes)

    body = [copy_in(tile(t), plane(x, affine(i) * 32, (8, 4))), summed(tile(t), "reset_reduce")]
    after = [
        instruction("memset", tile(last), value=1.0),
        summed(tile(last), "reduce", {"reduce_result": tile(total)}),
        copy_in(tile(result), tile(total)),
    ]
    kernel = program([x], [result], [loop(i, body, [t]), *after], [last, total, result])
    data = normal(7, 8, 4)
    (found,) = executable(kernel, threads=threads, least_work=0).run([data])
    np.testing.assert_allclose(found[:, 0], data[-1].sum(axis=1) + 4, rtol=1e-5)


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    source, numbers, result = hbm((64, 512)), hbm((16, 64, 1), np.int32), hbm((16 * 64, 512))
    i = loop_variable(16)
    index, t = tensor((64, 1), np.int32), tensor((64, 512))
    rows = type(tile(source))(
        source, (64, 512), (), Affine(), (0, 1), source.dtype, (Indirect(tile(index), 512, 64),)
    )
    body = [
        copy_in(tile(index), plane(numbers, affine(i) * 64, (64, 1))),
        copy_in(tile(t), rows),
        copy_in(tile(result, (affine(i) * 64, 64)), tile(t)),
    ]
    kernel = program([source, numbers], [result], [loop(i, body, [index, t])], [result])
    places = np.zeros((16, 64, 1), np.int32)
    places[11, 5] = 64
    with pytest.raises(IndexError, match="index 32768 is out of bounds"):
        executable(kernel, threads=2).run([normal(64, 512), places])


def test_arguments_are_not_changed_unless_returned_and_must_match() -> None:
    """A mutable argument is returned with its new contents; the caller's array stays (S30)."""
    x = hbm((4, 4))
    t = tensor((4, 4))
    body = [
        copy_in(tile(t), tile(x)),
        instruction("tensor_scalar", tile(t), {"data": tile(t)}, op0="multiply", operand0=2.0),
        copy_in(tile(x), tile(t)),
    ]
    kernel = program([x], [x], body, [t])
    data = normal(4, 4)
    kept = data.copy()
    np.testing.assert_array_equal(execute(kernel, [data])[0], kept * 2)
    np.testing.assert_array_equal(data, kept)
    with pytest.raises(KernelValueError, match="argument"):
        execute(kernel, [data.astype(np.float64)])
    with pytest.raises(KernelValueError, match="takes 1 arrays"):
        execute(kernel, [])


def test_every_run_draws_the_same_random_numbers() -> None:
    result, t = hbm((8, 8)), tensor((8, 8))
    body = [instruction("random", tile(t)), copy_in(tile(result), tile(t))]
    compiled = executable(program([], [result], body, [t, result]))
    np.testing.assert_array_equal(compiled.run([])[0], compiled.run([])[0])


def test_results_of_two_runs_are_separate_arrays() -> None:
    kernel, _ = square_by_blocks(2)
    compiled = compile_program(kernel)
    assert compile_program(kernel) is compiled
    first = compiled.run([normal(256, 64)])[0]
    kept = first.copy()
    compiled.run([normal(256, 64)])
    np.testing.assert_array_equal(first, kept)


def test_wide_floats_leave_out_the_rounding_of_narrow_tiles() -> None:
    source, result = hbm((4, 4)), hbm((4, 4))
    t = tensor((4, 4), "bfloat16")
    body = [copy_in(tile(t), tile(source), dtype="bfloat16"), copy_in(tile(result), tile(t))]
    kernel = program([source], [result], body, [t, result])
    data = np.full((4, 4), 1 + 2.0**-9, np.float32)
    assert (execute(kernel, [data])[0] == 1).all()
    np.testing.assert_array_equal(execute(kernel, [data], wide_floats=True)[0], data)
    assert (compile_program(in_double(kernel)).run([data])[0] == 1).all(), (
        "narrow formats round as they do"
    )


def test_storage_is_given_back() -> None:
    kernel, _ = square_by_blocks(4)
    compiled = executable(kernel)
    data = normal(512, 64)
    compiled.run([data])
    tracemalloc.start()
    compiled.run([data])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 64 * 1024
