"""CUDA kernels without a GPU: what their text says of the launch, what compilers and rules make of it."""

import shutil

import kernels
import pytest

from accelopt.contract.spec import KernelSpec
from accelopt.errors import ConfigError
from accelopt.kernels.cuda import compiling
from accelopt.kernels.cuda.compiling import build
from accelopt.kernels.cuda.launch_pragma import (
    ExecutionConfiguration,
    launch_of,
    scalar_type,
    signature_of,
    with_launch,
)
from accelopt.kernels.cuda.moves import RULES, proposals
from accelopt.kernels.gpu.bench.judging.compile_check import CompilerPool
from accelopt.kernels.gpu.bench.source.source_rules import violations
from accelopt.kernels.gpu.ptx_structure import structures
from accelopt.kernels.moves import METHODS, methods_of, what_it_does
from accelopt.kernels.specs.solutions import definition_of, solution_of, workload_of

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def start(made=kernels.vector_add):
    return solution_of(KernelSpec.model_validate(made())).main_source


def test_a_launch_stands_in_the_source_and_is_read_back():
    launch = ExecutionConfiguration((65536, 1, 1), (256, 1, 1), 0)
    assert launch_of(start()) == launch
    changed = launch.updated({"grid_x": 128, "block": {"x": 64}, "shared": 1024})
    assert launch_of(with_launch(start(), changed)) == ExecutionConfiguration(
        (128, 1, 1), (64, 1, 1), 1024
    )
    assert with_launch(start(), launch) == start()
    for wrong in ({"grid": 0}, {"block": {"x": "many"}}, {"shared": -1}):
        with pytest.raises(ConfigError, match="not a whole number"):
            launch.updated(wrong)


def test_signatures_are_read_with_their_types():
    source = """
    template <int N> __device__ float twice(float x) { return 2 * x; }
    // __global__ void commented(int n) {}
    __global__ void __launch_bounds__(256) scale(const __half *__restrict__ x, float* y,
                                                 unsigned long long n, const float by = 2.f) {}
    """
    kernel = signature_of(source)
    assert kernel.name == "scale"
    assert [(p.name, p.pointer, p.constant) for p in kernel.parameters] == [
        ("x", True, True), ("y", True, False), ("n", False, False), ("by", False, True)]  # fmt: skip
    assert scalar_type(kernel.parameters[2])(2**40).value == 2**40
    assert scalar_type(kernel.parameters[3])(0.5).value == 0.5
    with pytest.raises(ConfigError, match="there are scale"):
        signature_of(source, "other")


@needs_nvcc
@pytest.mark.parametrize("mangled", [False, True])
def test_nvcc_gives_ptx_machine_code_and_what_they_take(tmp_path, mangled):
    source = start(kernels.row_sums)
    source = source.replace('extern "C" ', "") if mangled else source
    built = compiling.build(source, 90, tmp_path)
    (takes,) = compiling.used(built.notes)
    assert takes.name == built.entry("row_sums") and takes.shared_bytes >= 1024
    assert 0 < takes.registers < 255 and takes.stack_bytes == 0
    assert built.cubin[:4] == b"\x7fELF" and built.compiler.startswith("nvcc")
    with pytest.raises(compiling.CompilationError, match="no kernel row"):
        built.entry("row")
    with pytest.raises(compiling.CompilationError, match="partially"):
        compiling.build(
            source.replace("partial[threadIdx.x] = sum", "partially = sum"), 90, tmp_path
        )


@pytest.mark.skipif(compiling.nvrtc_library() is not None, reason="NVRTC is installed")
def test_without_any_compiler_the_way_out_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(compiling.CompilationError, match="pip install nvidia-cuda-nvrtc"):
        compiling.build(start(), 90, tmp_path)


@pytest.mark.skipif(compiling.nvrtc_library() is None, reason="nvidia-cuda-nvrtc is not installed")
def test_nvrtc_compiles_where_there_is_no_toolkit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    built = compiling.build(start(), 90, tmp_path)
    assert built.compiler.startswith("NVRTC") and built.cubin[:4] == b"\x7fELF"
    (takes,) = compiling.used(built.notes)
    assert takes.registers > 0 and built.entry("vector_add") == "vector_add"


ODD = """#include <cuda_fp16.h>
#define EACH(i, n) \\
  for (int i = 0; i < n; ++i)
__device__ float twice(const float* x) { return 2 * *x; }
// __global__ void scale(float* x) {}
#pragma launch grid(4) block(64)
template <typename T> __global__ void scale(
    T* /* both */ x, const float *const y, const int* __restrict__ z, float w[4], int n) {
  /* no loop:
  for (;;) {} */
  EACH(i, n) x[i] *= 2;
  #pragma unroll
  for (int i = 0; i < 4; ++i) x[i] += twice(y + i);
  if (n)
    for (int i = threadIdx.x; i < n; i += blockDim.x) { x[i] = z[i]; __syncthreads(); }
}
"""


def test_hints_stand_in_the_kernel_itself_and_nowhere_else():
    """Restricted pointers and launch bounds are of the kernel's head alone, pragmas above loops alone:
    CUDA C++ Programming Guide, "__restrict__", "Launch Bounds" and "#pragma unroll"."""
    found = {action.sentence: action.source for action in proposals(ODD, "", 48)}
    assert found.pop("Declare that the pointers do not overlap.") == ODD.replace(
        "*const y", "*const __restrict__ y"
    ).replace("T* /* both */ x", "T* /* both */ __restrict__ x")
    assert found.pop("Declare blocks of 64 threads.") == ODD.replace(
        "void scale(\n", "void __launch_bounds__(64) scale(\n"
    )
    loop = "    for (int i = threadIdx.x"
    assert set(found.values()) == {
        ODD.replace(loop, f"    #pragma unroll {factor}\n{loop}") for factor in (2, 4, 8)
    }


@pytest.mark.parametrize("source", ["", "#pragma launch grid(4) block(64)\n", kernels.VECTOR_ADD])
def test_nothing_is_hinted_of_a_source_without_a_kernel_or_a_launch(source):
    assert proposals(source, "", 48) == []


@pytest.mark.parametrize("made", [kernels.vector_add, kernels.row_sums])
def test_hints_make_other_kernels_that_the_source_rules_let_pass(made):
    found = proposals(start(made), "", 48)
    assert len({action.key for action in found}) == len(found) >= 2
    assert {action.method for action in found} <= set(methods_of("cuda"))
    template = solution_of(KernelSpec.model_validate(made()))
    assert not any(violations(template.with_source(a.source, "moved")) for a in found)
    for action in found:
        again = {one.change.parameters.get("loop") for one in proposals(action.source, "", 48)
                 if one.method == action.method}  # fmt: skip
        assert action.change.parameters.get("loop") not in again


@needs_nvcc
@pytest.mark.parametrize("made", [kernels.vector_add, kernels.row_sums])
def test_what_the_rules_make_compiles(made):
    spec = KernelSpec.model_validate(made())
    solution = solution_of(spec)
    problem = definition_of(spec, solution, None), workload_of(spec)
    with CompilerPool(1, "h200") as pool:
        first = pool.check(*problem, solution)
        assert not first.failure and first.code[0].kernel == solution.spec.entry_point[11:]
        assert ".entry" in first.code[0].ptx and first.resources[0].registers > 0
        [kernel] = structures(first.code, first.resources)
        assert kernel.blocks in (65536, 8192) and kernel.dag.threads == 256
        assert {"ld", "ret"} <= {one.opcode for one in kernel.dag.function.statements}
        moved = {action.method: action.source for action in proposals(solution.main_source, "", 48)}
        for method, source in moved.items():
            assert not pool.check(*problem, solution.with_source(source, method)).failure, method
        broken = pool.check(*problem, solution.with_source(start().replace("x[i]", "x[j]"), "b"))
        assert "j" in broken.failure and not broken.unknown


def test_every_method_of_cuda_says_what_it_does():
    assert all(what_it_does(name, "cuda").endswith(".") for name in methods_of("cuda"))
    assert {f"accelopt.kernels.cuda.moves:{rule.__name__}" for rule in RULES} <= {
        method.place for method in METHODS.values()
    }


TEMPLATE = """#pragma launch grid(4) block(256)
template <int BLOCK, typename T>
__global__ void scale(const T* x, T* y, T by) {
    y[blockIdx.x * BLOCK + threadIdx.x] = by * x[blockIdx.x * BLOCK + threadIdx.x];
}
"""


def test_a_template_without_its_arguments_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match=r"not read: hints and knobs only.*scale<BLOCK, T>"):
        signature_of(TEMPLATE, "scale").instance.strip()
    found = signature_of(TEMPLATE, "scale<256, float>")
    assert found.instance == "scale<256, float>"
    assert [parameter.type for parameter in found.parameters] == ["float"] * 3


@needs_nvcc
def test_the_instance_that_a_contract_names_is_compiled(tmp_path):
    """An explicit instantiation by `decltype`: C++17, [temp.explicit]; compiled by nvcc 13.0."""
    built = build(TEMPLATE, 90, tmp_path, "scale<256, float>")
    assert "scaleILi256EfE" in built.entry("scale<256, float>")
