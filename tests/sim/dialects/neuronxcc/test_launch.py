"""What happens on the host: modes, grids, results, latency (docs: `nki/api/nki/__init__.py`)."""

import numpy as np
import pytest
from kernel_heads import function
from kernel_lines import writing, writing_of

from accelopt.sim import compute, serial
from accelopt.sim.dialects import neuronxcc as nki
from accelopt.sim.errors import KernelError, Unsupported

A = np.random.default_rng(0).random((128, 512), dtype=np.float32)

PLAIN = function("nl.store(out, nl.add(nl.load(a), nl.load(b)))", parameters="a, b")
GRIDDED = writing(
    "p = nl.ds(nl.program_id(0) * 32, 32)", "nl.store(out[p, :], nl.exp(nl.load(a[p, :])))"
)
WRITES = """
@nki.trace
def writes(a, out):
    nl.store(out, nl.exp(nl.load(a)))
"""
TEXT = GRIDDED + "gridded = kernel\n" + PLAIN + "plain, kernel = kernel, nki.jit(kernel)\n" + WRITES


@pytest.fixture
def module(kernel_text):
    return kernel_text(TEXT).module


def test_modes_that_run_return_arrays(module):
    nki = module.nki
    for kernel in (
        module.kernel,
        nki.jit(module.plain, mode="simulation"),
        nki.jit(mode="baremetal")(module.plain),
        nki.baremetal(module.kernel),
        nki.baremetal(additional_compile_opt="--x")(module.plain),
        nki.jit(module.kernel, platform_target="trn2"),
    ):
        assert np.array_equal(kernel(A, A), A + A)
    assert np.array_equal(nki.simulate_kernel(module.kernel, A, b=A), A + A)


def test_a_specification_without_data_is_zeros(module):
    """SDK 2.26.1: nt.tensor[[shape], dtype] stands for an array whose contents do not matter."""
    nt, nl = module.nt, module.nl
    assert np.array_equal(module.kernel(A, nt.tensor[[128, 512], nl.float32]), A)


def test_older_kernels_write_their_arguments(module):
    out = np.zeros_like(A)
    assert module.nki.simulate_kernel(module.writes, A, out) is None
    assert np.allclose(out, np.exp(A))
    again = np.zeros_like(A)
    module.nki.baremetal(module.writes)(A, again)
    assert np.array_equal(out, again)


@pytest.mark.parametrize("grid", ["4", "nl.nc(2) * 2", "2 * nl.nc(2)", "nl.spmd_dim(nl.nc(2), 2)"])
def test_grids(module, grid):
    size = eval(grid, {"nl": module.nl})
    assert np.allclose(module.gridded[size](A), np.exp(A))
    assert np.allclose(module.nki.simulate_kernel(module.gridded[size], A), np.exp(A))


def test_benchmark_gives_percentiles_in_microseconds(module):
    bench = module.nki.benchmark(warmup=1, iters=2)(module.kernel)
    bench(A, A)
    latency = bench.benchmark_result.nc_latency
    from accelopt.sim import timing

    expected = timing.profile(module.kernel.trace(A, A)).latency_ms * 1000
    assert [latency.get_latency_percentile(p) for p in (0, 1, 50, 99, 100)] == [expected] * 5
    assert 1 < expected < 10_000
    with pytest.raises(ValueError):
        latency.get_latency_percentile(42)


def test_benchmark_of_specifications_without_data_and_with_grid(module):
    nt, nl = module.nt, module.nl
    bench = module.nki.benchmark(module.gridded)
    bench[4](nt.tensor[[128, 512], nl.float32])
    assert bench.benchmark_result.nc_latency.get_latency_percentile(99) > 0


def test_target_reaches_the_kernel(kernel_text):
    asked = "assert nisa.get_nc_version() == nisa.nc_version.gen3"
    text = kernel_text(function(asked, "nl.store(out, nl.load(a))"))
    jit, plain = text.module.nki.jit, text.kernel
    assert text.traced(jit(plain, platform_target="trn2"), [A]).target == "trn2"
    with pytest.raises(AssertionError):
        jit(plain)(A)


def test_kernel_code_cannot_read_data(kernel_text):
    for use in ("np.asarray(a)", "np.exp(nl.load(a))", "float(nl.load(a)[0, 0])", "list(a)"):
        text = kernel_text.writing(f"x = {use}\nnl.store(out, nl.load(a))")
        with pytest.raises(TypeError):
            text.trace(A)


@pytest.mark.parametrize(
    "use",
    ["nl.gemm_grid(4)", "nisa.builtin_custom_op()", "nisa._tiled_offloaded_fma(t)",
     "nccl.all_gather(t)"],
)  # fmt: skip
def test_what_is_not_there_is_named(kernel_text, use):
    text = kernel_text(f"""
        import neuronxcc.nki.nccl as nccl
        from neuronxcc.nki._private import private_api

        @nki.jit
        def kernel(a):
            t = nl.load(a)
            {use}
        """)
    with pytest.raises(Unsupported) as refused:
        text.trace(A)
    assert use.split("(")[0].split(".")[-1] in str(refused.value)
    assert refused.value.source.file == text.file


def test_import_shims(kernel_text):
    text = kernel_text("""
        from neuronxcc.nki.language.constants import sizeinbytes
        from neuronxcc.nki.isa.constants import engine, oob_mode
        from neuronxcc.nki.isa.neuron_isa import dma_copy
        from neuronxcc.nki.compiler.backends.neuron.indexing import TileIndex
        from neuronxcc.nki.compiler.backends.neuron.tensor import local_tile
        from neuronxcc.nki.kernels.attention import flash_fwd

        @ncc.enable_stack_allocator
        @ncc.skip_middle_end_transformations
        @nki.jit
        def kernel(a):
            assert sizeinbytes(nl.bfloat16) == 2 and engine.vector == nisa.vector_engine
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            t = nl.load(a)
            assert isinstance(t, local_tile) and isinstance(nl.arange(4), TileIndex)
            nl.store(out, t)
            return out
        """)
    assert np.array_equal(text.run(A), A)


def test_a_result_has_the_shape_it_was_returned_in(kernel_text):
    """As `interpolate_bilinear_2x_fwd` of nki-samples: (n, c) are one dimension inside."""
    module = kernel_text.of(shape="(6, 16)")("""
        nl.store(out, nl.exp(nl.load(a.reshape((6, 16)))))
        return out.reshape((2, 3, 16)), out
        """).module
    a = A[:2, :48].reshape(2, 3, 16)
    program = module.kernel.trace(a)
    again = serial.loads(serial.dumps(program))
    for found in (module.kernel(a), compute.execute(again, [a])):
        assert [array.shape for array in found] == [(2, 3, 16), (6, 16)]
        np.testing.assert_allclose(found[0], np.exp(a), rtol=1e-6)
    assert nki.benchmark(module.kernel)(a)[0].shape == (2, 3, 16)


@pytest.mark.parametrize("part", ["out[0:64, :]", "out.reshape((256, 256))[0:128, :]"])
def test_a_part_of_a_tensor_is_no_result(kernel_text, part):
    text = kernel_text.writing(f"nl.store(out, nl.load(a))\nreturn {part}")
    with pytest.raises(KernelError, match="returns a part of tensor"):
        text.kernel(A)


@pytest.mark.parametrize("annotation", ["nki.tensor", "nt.tensor", "nt.tensor[128, 512]"])
def test_annotations_of_parameters(kernel_text, annotation):
    """nki.tensor as an annotation is the class of tensors, as in nki-samples `maxpooling.py`."""
    text = writing("nl.store(out, nl.load(a))").replace("(a):", f"(a: {annotation}) -> nki.tensor:")
    np.testing.assert_array_equal(kernel_text(text).kernel(A), A)


ALL_REDUCE = writing_of("a", shape="(2, 128, 512)", dtype="nl.float32")("""
t = nl.all_reduce(nl.load(a), op=np.add, program_axes=[0], dtype=nl.float32)
nl.store(out[nl.program_id(0)], t)
""")


def test_a_reduction_over_one_program_is_its_own_tile(kernel_text):
    assert np.array_equal(kernel_text(ALL_REDUCE).module.kernel[1](A)[0], A)


def test_a_reduction_over_several_programs_says_what_to_do(kernel_text):
    with pytest.raises(Unsupported, match=r"over 2 programs.*second kernel") as refused:
        kernel_text(ALL_REDUCE).module.kernel[2](A)
    assert refused.value.source.line == 13


def test_the_memory_of_a_tensor_is_the_name_it_was_made_with(kernel_text):
    """As `softmax_kernel` of nki-samples `helper_kernels.py`."""
    text = kernel_text.writing("""
        t = nl.load(a)
        turned = nisa.nc_transpose(t[:, 0:128])
        assert t.buffer is nl.sbuf and turned.buffer is nl.psum and a.buffer is nl.hbm
        again = nl.ndarray((128, 512), dtype=a.dtype, buffer=t.buffer)
        again[...] = nl.copy(t)
        nl.store(out, again)
        """)
    assert np.array_equal(text.run(A), A)


def test_a_comparison_of_numbers_masks_a_tile(kernel_text):
    """Where a loop is unrolled its index is a number, and so `tile[i < 3]` a truth value (nki-samples
    `blockwise_mm.py`)."""
    text = kernel_text.of(shape="(4, nl.par_dim(128), 512)")("""
        for i in nl.static_range(4):
            t = nl.zeros((128, 512), dtype=a.dtype)
            t[...] = nl.add(nl.load(a)[i < 3], 1.0)
            nl.store(out[i], t)
        """)
    assert np.array_equal(text.run(A), np.stack([A + 1, A + 1, A + 1, 0 * A]))


@pytest.mark.parametrize("name", ["nki.magic", "neuronxcc.nki.magic", "neuronxcc.xla"])
def test_a_module_of_neither_dialect_is_named(kernel_text, name):
    """One sentence says what is understood, and a kernel that tries several still can."""
    said = f"implement `{name}`.*It understands kernels that import neuronxcc[.]nki .*, or nki"
    with pytest.raises(ModuleNotFoundError, match=said) as refused:
        kernel_text(f"import {name} as other\ndef kernel(a): pass")
    assert refused.value.source.line == 10
    kernel_text("""
        try:
            import nki.magic as both
        except ImportError:
            both = nki
        kernel = both.jit(lambda a: None)
    """)


def test_names_that_are_not_there_are_unsupported_not_errors_of_python(kernel_text):
    lines = {
        "from neuronxcc.nki.nccl.collectives import all_gather; all_gather(a)": "collectives.all_gather",
        "for i in range(nt.scalar(nl.load(a)[0:1, 0:1])): pass": "loops and indices by nt.scalar",
    }
    for line, said in lines.items():
        text = kernel_text(f"@nki.jit\ndef kernel(a):\n    {line}\n")
        with pytest.raises(NotImplementedError, match=said):
            text.trace(np.zeros((128, 4), np.float32))


def test_the_stack_allocator_needs_its_companion(kernel_text):
    """docs (nki.compiler.enable_stack_allocator): "Must use together with
    skip_middle_end_transformations"."""
    body = "@ncc.enable_stack_allocator{options}\n{more}\n" + writing("nl.store(out, nl.load(a))")
    a = np.zeros((128, 4), np.float32)
    together = "@ncc.skip_middle_end_transformations"
    assert kernel_text(body.format(options="(log_level=50)", more=together)).trace(a)
    with pytest.raises(ValueError, match="together with skip_middle_end_transformations"):
        kernel_text(body.format(options="", more="")).trace(a)
