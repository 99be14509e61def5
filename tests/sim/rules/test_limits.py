"""Limits of instructions and of direct allocation: one kernel each that goes beyond. Sources: the
parameter descriptions of the SDK 2.26.1 stubs; texts marked obs were seen in real runs."""

import numpy as np
import pytest
from kernel_lines import writing_of

from accelopt.sim import rules
from accelopt.sim.errors import KernelError

A = np.zeros((128, 512), np.float32)

KERNEL = writing_of("a")("""
t = nl.load(a)
q = nl.copy(t[:, 0:128])
c = nl.copy(t[:, 0:1])
p = nisa.nc_matmul(q, q)
i = nl.copy(q, dtype=nl.int32)
{}
nl.store(out, t)
""")

BEYOND = {
    "u = nisa.nc_matmul(t, t)": "err_size_of_dimension_exceed_arch_limit",
    "u = nisa.nc_matmul(q, nl.zeros((128, 1024), nl.float32))":  # S8: fp32 results in one bank
        "err_size_of_dimension_exceed_arch_limit",
    "u = nisa.nc_matmul(p, q)": "err_unsupported_memory",
    "u = nisa.nc_matmul(i, i)": "operand_dtype",
    "u = nisa.nc_matmul(q, q, tile_position=(0, 0))": "tile_position",
    "u = nisa.nc_matmul(q, q, tile_position=(0, 16), tile_size=(128, 128))": "tile_position",
    "u = nisa.nc_transpose(t)": "err_size_of_dimension_exceed_arch_limit",
    "u = nisa.activation(nl.exp, t, bias=1.0)": "operand_type",  # obs: TypeError
    "u = nisa.activation(nl.cos, t)": "unsupported_op",
    "u = nisa.activation_reduce(nl.exp, t, reduce_op=np.max, reduce_res=c)": "reduce_op",
    "u = nisa.tensor_tensor(p, p, op=nl.add)": "err_unsupported_memory",
    "u = nisa.tensor_tensor(p, p, op=nl.power)": "err_unsupported_memory",
    "u = nisa.tensor_tensor(q, i, op=nl.bitwise_and)": "operand_dtype",
    "u = nisa.tensor_scalar(t, nl.add, t)": "operand_shape",  # obs: SyntaxError
    "u = nisa.tensor_scalar(i, nl.add, 1, op1=nl.bitwise_and, operand1=3)": "mixed_operators",
    "u = nisa.tensor_copy(p, engine=nisa.gpsimd_engine)": "err_unsupported_memory",
    "u = nisa.tensor_tensor_scan(p, p, 0.0, nl.add, nl.add)": "err_unsupported_memory",
    "u = nisa.tensor_tensor_scan(t, q, 0.0, nl.add, nl.add)": "operand_shape",
    "u = nisa.scalar_tensor_tensor(data=t, op0=nl.add, operand0=c, op1=nl.add, operand1=q)":
        "operand_shape",
    "u = nisa.tensor_reduce(np.add, t, axis=0)": "reduce_axis",
    "u = nisa.tensor_reduce(nl.bitwise_or, t, axis=1)": "operand_dtype",
    "u = nisa.bn_stats(nl.zeros((128, 513), nl.float32))":
        "err_size_of_dimension_exceed_arch_limit",
    "u = nisa.bn_stats(t, mask=nl.arange(512)[None, :] >= 100)": "bn_stats_mask",
    "u = nisa.bn_aggr(nl.zeros((128, 7), nl.float32))": "bn_aggr_size",
    "u = nisa.bn_aggr([t])": "operand_type",  # obs: TypeError
    "u = nisa.max8(src=c)": "err_size_of_dimension_exceed_arch_limit",
    "u = nisa.nc_find_index8(data=t, vals=nisa.max8(src=t), dtype=nl.int8)": "index_dtype",
    "nisa.nc_stream_shuffle(t, t, [0] * 31)": "shuffle_mask",
    "nisa.nc_stream_shuffle(q[32:96, :], q[0:64, :], [0] * 32)": "start_partition",
    "nisa.tensor_copy_predicated(src=t, dst=t, predicate=t)": "operand_dtype",
    "u = nisa.affine_select((nl.arange(512)[None, :] < 4) & (nl.arange(512)[None, :] > 2), t, 0)":
        "err_unsupported_expression_in_mask",
    "u = nisa.range_select(on_true_tile=t, comp_op0=np.less, comp_op1=np.less, bound0=c, bound1=c)":
        "target",
    "u = nisa.dma_transpose(t, axes=(0, 1))": "transpose_axes",
    "nisa.dma_copy(dst=p, src=a)": "err_unsupported_memory",
    "nisa.dma_copy(dst=t, src=a, dge_mode=nisa.dge_mode.hwdge)": "dge_mode",
    "u = nl.load(a, dtype=np.float64)": "dtype",
    "x = nl.ndarray((64, 4), nl.float32, buffer=ncc.sbuf.alloc(lambda *_: (32, 0)))":
        "direct_allocation",
    "x = nl.ndarray((8, 4), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=180224))":
        "direct_allocation",
    "x = nl.ndarray((8, 4), nl.float32, buffer=ncc.psum.mod_alloc(base_bank=8))":
        "direct_allocation",
    "x = nl.ndarray((8, 513), nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))":
        "direct_allocation",
}  # fmt: skip


@pytest.mark.parametrize("line", BEYOND)
def test_beyond_the_limit(line, kernel_text):
    text = kernel_text(KERNEL.format(line))
    with pytest.raises(KernelError) as refused:
        text.trace(A)
    assert refused.value.identifier == BEYOND[line]
    assert refused.value.source == (text.file, text.line_of(line))


def test_the_same_kernel_without_the_line_is_legal(kernel_text):
    kernel_text(KERNEL.format("pass")).trace(A)


def test_reading_what_was_never_written(kernel_text):
    text = kernel_text.writing("""
        total = nl.ndarray((128, 512), nl.float32)
        for i in nl.sequential_range(4):
            total[...] = nl.add(total, nl.load(a))  # here
        nl.store(out, total)
        """)
    with pytest.raises(KernelError) as refused:
        text.trace(A)
    assert refused.value.identifier == "uninitialised_read"
    assert refused.value.source.line == text.line_of("# here")


def test_scratch_in_hbm_of_an_allocated_kernel(kernel_text):
    """Compiler error NKI005 (direct allocation guide, known limitations)."""
    text = kernel_text.writing("""
        between = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.hbm)
        t = nl.ndarray((128, 512), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        t[...] = nl.load(a)
        nl.store(between, t)
        t[...] = nl.load(between)
        nl.store(out, t)
        """)
    with pytest.raises(KernelError, match="NKI005"):
        text.trace(A)


@pytest.mark.parametrize("grid", [None, (2,)])
def test_programs_may_do_the_same_but_not_overwrite_each_other(kernel_text, grid):
    """Public kernels launch programs that ignore their number; one that uses it must write its own
    part."""
    from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel

    same = kernel_text.writing("nl.store(out, nl.load(a))")
    assert not rules.verify(trace_kernel(same.kernel, [A], grid=grid))
    other = kernel_text.of(shape="(64, 512)")("""
        nl.store(out, nl.load(a[nl.ds(nl.program_id(0) * 64, 64), :]))
        """)
    found = rules.verify(trace_kernel(other.kernel, [A], grid=(2,)))
    assert [error.identifier for error in found] == ["err_unexpected_output_dependencies"]
