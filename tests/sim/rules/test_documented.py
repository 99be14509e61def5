"""Every documented error id (SDK 2.26.1 `nki/api/nki.errors.rst`): one kernel that breaks the rule,
refused with that id, at the marked line, with a mend. The kernels follow the documented examples."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from kernel_lines import copying, writing

from accelopt.sim import rules
from accelopt.sim.errors import KernelError

TILE = np.zeros((128, 512), np.float32)
INDICES = np.zeros((64, 1), np.int32)
ONE = np.zeros((1, 1), np.float32)


BROKEN = {
    "err_1d_arange_not_supported": (
        copying("i = nl.arange(64)", "c = nl.exp(t[i, 0])  # here"), TILE),
    "err_activation_bias_invalid_type": (
        copying("b = nisa.memset((128, 1), 1, dtype=nl.int8)",
                "t = nisa.activation(nl.exp, t, bias=b)  # here"), TILE),
    "err_activation_scale_invalid_type": (
        copying("s = nisa.memset((128, 1), 1.2, dtype=nl.float16)",
                "t = nisa.activation(nl.exp, t, scale=s)  # here"), TILE),
    "err_activation_scale_scalar_or_vector": (
        copying("t = nisa.activation(nl.exp, t, scale=t)  # here"), TILE),
    "err_ambiguous_tensor_truth_value": (
        copying("c = not (t > 0)  # here"), TILE),
    "err_annotation_shape_mismatch": (
        copying("d: nt.tensor[128, 512] = nl.zeros((par_dim(128), 128), dtype=np.float32)  # here"),
        TILE),
    "err_bias_tensor_must_be_specified_in_allocation": (
        writing("t = nl.ndarray((128, 512), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))",
                "t[...] = nl.load(a)",
                "t[...] = nisa.activation(np.exp, t[...])  # here",
                "nl.store(out, t)"), TILE),
    "err_cannot_assign_to_index": (
        copying("_, x = nl.mgrid[0:1, 0:8]", "x[0, 5] = 1024  # here"), TILE),
    "err_cannot_update_immutable_parameter": (
        copying("nl.store(a, t)  # here"), TILE),
    "err_control_flow_condition_depending_on_arange": (
        writing("for k in nl.affine_range(4):",
                "    j = k * 128 + nl.arange(128)[None, :]",
                "    if j > 200:  # here",
                "        nl.store(out, nl.load(a))"), TILE),
    "err_copy_dynamic_indirect_indices_not_natively_supported": (
        writing("t = nl.load(data)",
                "i = nl.load(idx)",
                "s = nl.ndarray((8, 4), dtype=data.dtype)",
                "y, z = nl.mgrid[0:8, 0:4]",
                "s[y, z] = t[0, i, z]  # here",
                "nl.store(out, s)",
                parameters="data, idx", shape="(8, 4)"), np.zeros((128, 8, 4), np.float32), np.zeros((8, 1), np.int32)),
    "err_dynamic_control_flow_not_supported": (
        writing("c = nl.load(a)",
                "if c:  # here",
                "    nl.store(out, 1)"), ONE),
    "err_exceed_max_supported_dimension": (
        copying("x = nl.zeros((64, 32, 2), dtype=np.float32)", "b = nl.transpose(x)  # here"), TILE),
    "err_failed_to_infer_tile_from_local_tensor": (
        copying("x = nl.zeros((4, par_dim(8), 8), dtype=nl.float32)", "c = nl.add(x, 32)  # here"),
        TILE),
    "err_hbm_tensor_with_init_value_not_supported": (
        copying("x = nl.full((3, 128), 1.0, dtype=nl.float32, buffer=nl.hbm)  # here"), TILE),
    "err_indirect_indices_are_not_supported_with_nki_api": (
        writing("i = nl.load(idx)",
                "t = nl.load_transpose2d(data[i[nl.arange(64)[:, None], 0], nl.arange(512)[None, :]])  # here",
                "nl.store(out, t)", parameters="data, idx", shape="(512, 64)"), TILE, INDICES),
    "err_indirect_indices_free_dim": (
        writing("i = nl.load(idx)",
                "p, f = nl.mgrid[0:64, 0:512]",
                "t = nl.load(data[i[p, 0], f])  # here",
                "nl.store(out, t)", parameters="data, idx", shape="(64, 512)"), TILE, INDICES),
    "err_leading_dimension_of_tensor_must_be_partition": (
        copying("x = t.reshape((64, 1024))  # here"), TILE),
    "err_local_variable_used_out_of_scope": (
        writing("for i in range(4):",
                "    if i < 2:",
                "        tmp = nl.load(a)",
                "    else:",
                "        tmp = nl.load(a)",
                "    nl.store(out[nl.ds(i * 128, 128), :], tmp)  # here", shape="(512, 512)"), TILE),
    "err_mutable_parameter_not_returned": ("""
        @nki.jit
        def kernel(a: nt.mutable_tensor):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            t = nl.load(a)
            nl.store(out, t)
            nl.store(a, t)
            return out
        """, TILE),
    "err_nested_kernel_with_spmd_grid": ("""
        @nki.trace
        def inner(a, out):
            nl.store(out, nl.load(a))

        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            inner[4, 4](a, out)  # here
            return out
        """, TILE),
    "err_num_partition_exceed_arch_limit": (
        copying("x = nl.zeros((256, 1024), dtype=np.float32)  # here"), TILE),
    "err_num_partition_mismatch": (
        copying("y = nl.zeros((1, 512), dtype=np.float32)",
                "t = nisa.tensor_tensor(t, y, op=nl.add)  # here"), TILE),
    "err_shared_hbm_must_in_kernel_level": (
        writing("for i in range(8):",
                "    b = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)  # here",
                "nl.store(out, nl.load(a))"), TILE),
    "err_size_of_dimension_exceed_arch_limit": (copying("b = nl.transpose(t)  # here"), TILE),
    "err_store_dst_shape_smaller_than_other_shape": (
        copying("y = nl.zeros((128, 1), dtype=nl.float32)", "y[...] = t  # here"), TILE),
    "err_tensor_access_out_of_bound": (
        writing("for i in nl.affine_range(4):",
                "    tile = nl.mgrid[0:128, 0:128]",
                "    nl.store(out[tile.p, i * 128 + tile.x], value=0)  # here",
                shape="(128, 400)", dtype="np.float32"), TILE),
    "err_tensor_creation_on_scratchpad_with_init_value_not_supported": (
        copying("x = nl.full((3, par_dim(128), 512), 1.0, nl.float32, "
                "buffer=ncc.sbuf.mod_alloc(base_addr=0))  # here"), TILE),
    "err_tensor_output_not_written_to": (
        writing("for i in nl.affine_range(128 // 129):",
                "    nl.store(out, nl.load(a))"), TILE),
    "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel": (
        writing("t = nl.ndarray((128, 128), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))",
                "p = nl.ndarray((128, 128), nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))",
                "t[...] = nl.load(a[:, 0:128])",
                "p[...] = nisa.nc_transpose(t[...])  # here",
                "t[...] = nl.copy(p[...])",
                "nl.store(out, t)", shape="(128, 128)"), TILE),
    "err_unexpected_output_dependencies": (
        writing("t = nl.ndarray((4, par_dim(128), 512), dtype=nl.float32)",
                "for i in nl.affine_range(4):",
                "    t[0] = 0  # here",
                "nl.store(out, t[0])"), TILE),
    "err_unsupported_expression_in_mask": (
        writing("for i in range(8):",
                "    nl.store(out, nl.load(a), mask=(i % 4) < 2)  # here"), TILE),
    "err_unsupported_memory": (copying("x = nl.load(t)  # here"), TILE),
    "err_unsupported_mixing_basic_advanced_tensor_indexing": (
        copying("i = nl.arange(4)[:, None]", "c = nl.exp(t[i, :])  # here"), TILE),
    "err_while_loop_requires_unconditional_entry": (
        writing("t = nl.load(a)",
                "s = nt.scalar(t)",
                "while s < 10:  # here",
                "    s = s + 1",
                "nl.store(out, t)"), ONE),
}  # fmt: skip


CLASSES = {
    "err_ambiguous_tensor_truth_value": ValueError,
    "err_local_variable_used_out_of_scope": SyntaxError,
    "err_num_partition_exceed_arch_limit": SyntaxError,
    "err_num_partition_mismatch": ValueError,
    "err_unexpected_output_dependencies": SyntaxError,
    "err_unsupported_mixing_basic_advanced_tensor_indexing": SyntaxError,
    "err_while_loop_requires_unconditional_entry": ValueError,
}
"""Exception classes seen in real runs or documented (reference `nki-api.md`, section 3)."""


@pytest.mark.parametrize("identifier", BROKEN)
def test_broken_rule_is_refused(identifier, kernel_text):
    source, *arguments = BROKEN[identifier]
    text = kernel_text(source)
    with pytest.raises(CLASSES.get(identifier, KernelError)) as refused:
        text.trace(*arguments)
    error = refused.value
    assert isinstance(error, KernelError) and error.identifier == identifier
    assert error.mend and error.source.file == text.file
    if "# here" in source:
        assert error.source == (text.file, text.line_of("# here"))
        assert f"{text.file}:{error.source.line}" in str(error)


def test_host_call_is_refused():
    nl = importlib.import_module("accelopt.sim.dialects.neuronxcc.language")
    with pytest.raises(KernelError) as refused:
        nl.zeros((128, 128), nl.float32)
    assert refused.value.identifier == "err_nki_api_outside_of_nki_kernel"


def test_every_documented_id_has_a_rule_and_a_kernel():
    texts = [path.read_text() for path in Path(rules.__file__).parent.glob("*.*")]
    decided = {name for text in texts for name in re.findall(r'[",](err_\w+)[",]', text)}
    assert len(decided) == 36
    assert decided - set(BROKEN) == {"err_nki_api_outside_of_nki_kernel"}
