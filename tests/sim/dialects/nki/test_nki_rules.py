"""What differs between the dialects by the vendor's rules (migration guides 0.1 to 0.6)."""

import numpy as np
import pytest
from kernel_lines import writing_of

from accelopt.sim.dialects.dialect import trace_kernel
from accelopt.sim.errors import KernelError

A = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)

KERNEL = writing_of("a")("""
t = nl.load(a)
number = nl.ndarray((128, 64), dtype=nl.int32, buffer=nl.sbuf)
product = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
{line}
nl.store(out, t)
""")
REFUSED = {
    "nisa.activation(dst=t, op=nl.exp, data=t, mask=True)": "min[(]p0",
    "nisa.activation(dst=t, op=nl.exp, data=t, dtype=nl.float32)": "format of dst",
    "nisa.dma_copy(dst=out, src=product)": "nisa.tensor_copy first",
    "nl.ndarray((2, 4, 4), nl.float32, buffer=nl.psum, address=(0, 100))": "Start at a bank",
    "nisa.dma_copy(dst=number, src=a, dge_mode=nisa.dge_mode.hwdge)": "hwdge moves bytes",
    "nisa.dma_copy(t, a.vector_select(0, number[:, 0:1]), dge_mode=nisa.dge_mode.hwdge)": "128 run",
    "nisa.dma_copy(t, a.vector_select(0, number[:, 0:1]), dge_mode=nisa.dge_mode.none)": "before",
    "nisa.tensor_reduce(dst=t[:, 0:8], op=nl.add, data=t.reshape((128, 8, 8)), axis=1)": "last dim",
    "nisa.nc_transpose(dst=nl.ndarray((64, 128), nl.bfloat16, buffer=nl.psum), data=t)": "dst is bf",
    "nisa.tensor_tensor(dst=t, data1=t, data2=t[:, 0:1], op=nl.add)": "tensor_tensor",
    "nl.add(t, t[:, 0:1])": "Repeat it",
    "nisa.tensor_tensor(t, t.reshape((128, 8, 8)), t[:, 0:1], nl.add)": "[.]broadcast repeats an axis",
    "[i for i in nl.affine_range(4, precise_schedule=True)]": (
        "affine_range[(][)] got an unexpected keyword argument 'precise_schedule'. The option is gone"
    ),
    "[i for i in nl.sequential_range(4, directives=None)]": "sequential_range[(][)] got an unexpected",
    "[i for i in nl.static_range()]": "static_range[(][)] missing a required argument: 'start'",
    "nl.load(a, order='C')": "load[(][)] got an unexpected keyword 'order'",
    "nisa.activation(dst=t, op=nl.exp)": "activation[(][)] missing a required argument: 'data'",
    "nl.arange(128)": "Removed in NKI 0.2",
    "nl.par_dim(128)": "Block dimensions were removed",
    "nisa.register_load(nisa.register_alloc(0), t)": "not one element",
    "nl.fori_loop(0, nisa.register_alloc(4), lambda i: 1)": "returns nothing",
    "nisa.core_barrier(out, (0, 1))": "two cores of a logical core",
    "nisa.nc_matmul(dst=t, stationary=t, moving=t)": "PSUM",
    "nisa.activation(dst=t[0:8], op=nl.exp, data=t[48:56])": "8 partitions of .* from partition 48",
    "nisa.activation(dst=t[32:80], op=nl.exp, data=t[0:48])": "48 partitions start at 0 or 64",
    "[nisa.activation(t[0:8], nl.exp, t[8 * i : 8 * i + 8]) for i in range(16)]": "start at 0, 32",
    "nl.load(a[64:192])": "End the slice where the tensor ends",
    "t if t > 1 else a": "cannot branch",
    "range(t)": "nl.fori_loop",
}
"""Beside those of `test_nki_versions`, which tell a version."""


@pytest.mark.parametrize("line", REFUSED)
def test_what_this_dialect_refuses(nki_text, line):
    with pytest.raises(KernelError, match=REFUSED[line].replace("bf", "bfloat16")):
        nki_text(KERNEL.format(line=line)).trace(A)


def test_parts_of_a_tile_begin_where_engines_can_reach_them(nki_text):
    """trainium_inferentia2_arch.rst: from 32 on 32 partitions, from 64 on 64; transfers from anywhere."""
    line = (
        "nisa.tensor_copy(t[32:64], t[96:128]); nisa.tensor_copy(t[64:128], t[0:64]); "
        "nisa.dma_copy(dst=t[17:81], src=a[0:64])\n"
        "    for i in range(4): nisa.activation(t[32 * i : 32 * i + 32], nl.copy, t[0:32])"
    )
    assert nki_text(KERNEL.format(line=line)).run(A).shape == A.shape
    line = "for i in range(4): nisa.activation(t[16 * i : 16 * i + 16], nl.copy, t[0:16])"
    with pytest.raises(
        KernelError, match=r"start_partition.*16 partitions start at 0, 32, 64 or 96"
    ):
        nki_text(KERNEL.format(line=line)).trace(A)
    line = "b = nl.ndarray((8, 64), nl.float32, address=(16, 0)); nisa.memset(b, value=0.0)"
    with pytest.raises(KernelError, match=r"8 partitions of .* from partition 16"):
        nki_text(KERNEL.format(line=line)).trace(A)


def test_the_number_that_the_library_writes_for_no_descriptors_made_on_the_way(nki_text):
    [out] = nki_text(KERNEL.format(line="nisa.dma_copy(dst=t, src=a, dge_mode=3)")).trace(A).results
    assert out.shape == A.shape


def test_the_jit_of_this_dialect_takes_no_platform(nki_text):
    with pytest.raises(KernelError, match="no platform_target"):
        nki_text("@nki.jit(platform_target='trn2')\ndef kernel(a): return a")


def test_a_schedule_is_one_of_instructions_that_are_there_in_their_order(nki_text):
    """how-to-scheduling-apis.rst; names count the iterations of loops."""
    text = KERNEL.format(
        line="for i in range(3): nisa.activation(t, nl.exp, t, scale=0.1, name=f'act{i}')"
    )
    one = nki_text(text)
    plain = one.run(A)
    one.kernel = one.kernel.with_schedule([("act1", "act0"), ("act2", ["act0", "act1"])])
    np.testing.assert_array_equal(one.run(A), plain)
    for pairs, said in (
        ([("act1", "act7")], "no instruction is named 'act7'"),
        ([("act0", "act2")], "'act0' after 'act2'"),
    ):
        other = nki_text(text)
        other.kernel = other.kernel.with_schedule(pairs)
        with pytest.raises(KernelError, match=said):
            other.trace(A)


def test_outputs_live_in_shared_memory(nki_text):
    text = KERNEL.format(line="pass").replace("nl.shared_hbm", "nl.hbm")
    with pytest.raises(KernelError, match="shared HBM"):
        nki_text(text).trace(A)


def test_a_star_in_the_signature_came_with_07(nki_text):
    """NKI 0.3: "does not support the `*` separator in kernel function signatures"; 0.7 traces with Python."""
    text = KERNEL.format(line="pass").replace("kernel(a)", "kernel(a, *, scale=1.0)")
    nki_text(text).trace(A)
    with pytest.raises(
        KernelError, match=r"parameters after '\*' came with NKI 0.7, .* for NKI 0.6"
    ):
        nki_text(text).trace(A, version="0.6")


def test_arguments_are_updated_in_place(nki_text):
    """nki_simulator.rst: arrays are updated when the kernel writes their tensors."""
    kernel = nki_text("""
        @nki.jit
        def kernel(a):
            t = nl.load(a)
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
            nl.store(a, t)
        """).kernel
    array = A.copy()
    kernel(array)
    np.testing.assert_allclose(array, A + 1, rtol=1e-6)


def test_every_violation_is_collected(nki_text):
    found = []
    text = KERNEL.format(line="nisa.memset(dst=number, value=2.0); nl.add(t, t[:, 0:1])")
    trace_kernel(nki_text(text).kernel, [A], report=found.append)
    assert [error.identifier for error in found][:1] == ["memset_value"]
    assert len(found) == 2


GATHERS = {
    "nisa.nc_n_gather(t, nl.load(a), nl.load(b))": (np.uint32, 64, 63),
    "nisa.local_gather(t, nl.load(a), nl.load(b)[:, 0:4])": (np.uint16, 70, 63),
    "nisa.dma_copy(t, a.ap([[64, 128], [1, 64]], vector_offset=nl.load(b)[:, 0:1], indirect_dim=0))": (
        np.int32, 200, 127,
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", GATHERS)
def test_an_index_out_of_bounds_is_named_with_its_tensor_and_bound(nki_text, line):
    """SDK 2.26.1: a run-time index that is out of bounds is an IndexError when the kernel runs."""
    dtype, index, bound = GATHERS[line]
    text = KERNEL.format(line=line).replace("kernel(a)", "kernel(a, b)")
    with pytest.raises(IndexError) as caught:
        nki_text(text).run(A, np.full((128, 64), index, dtype))
    said = str(caught.value.__cause__ or caught.value)
    assert f"index {index} of '" in said and f"0 to {bound}" in said and "'a'" in said
