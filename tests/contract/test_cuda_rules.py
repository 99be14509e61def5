"""Rules on CUDA kernels of strangers: what they propose gives what the kernel gives, run on the CPU.

The threads of a block are fibers there (`cuda_on_cpu.h`). Each kernel runs with sizes that fit and that do
not, with arrays that are aligned and that are not, with its threads forwards and backwards, between pages
that nobody may touch.
"""

import re
import shutil
from collections import Counter

import pytest
from cuda_samples import SAMPLES
from on_cpu import COMPILER, differing

from accelopt.kernels.cuda import compiling
from accelopt.kernels.cuda.language import values_of
from accelopt.kernels.cuda.launching import launch_of
from accelopt.kernels.cuda.moves import proposals
from accelopt.kernels.gpu.bench.source.native_rules import native_violations

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
SMALL = {
    "change_block_sizes", "walking_grid", "launch_bounds", "read_only_pointers", "unroll_loops",
    "cache_policy_cg",
}  # fmt: skip
"""Methods that leave a kernel's plan as it is."""


def proposed(name, most=100):
    sample = SAMPLES[name]
    return proposals(sample.source, "", most, sample.values())


@pytest.mark.parametrize("name", SAMPLES)
def test_kernels_are_read_or_left_alone(name):
    found = proposed(name)
    methods = {action.method for action in found}
    assert methods <= SMALL if SAMPLES[name].refuses else methods - SMALL
    for action in found:
        assert not native_violations("kernel.cu", {"kernel.cu": action.source}), action.sentence


@needs_compiler
@pytest.mark.parametrize("name", [name for name in SAMPLES if not SAMPLES[name].refuses])
def test_what_is_proposed_first_computes_what_the_kernel_computes(tmp_path, name):
    taken = Counter()
    sources = []
    for action in proposed(name):
        taken[action.method] += 1
        if taken[action.method] <= (1 if action.method in SMALL else 4):
            sources.append(action.source)
    assert not differing(SAMPLES[name], sources, tmp_path)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_all_that_is_proposed_computes_what_the_kernel_computes(tmp_path, name):
    assert not differing(SAMPLES[name], [action.source for action in proposed(name)], tmp_path)


@needs_compiler
def test_what_is_wrong_is_seen(tmp_path):
    sample = SAMPLES["softmax_block_a_row"]
    wrong = {
        "no barrier": sample.source.replace("__syncthreads();\n    }", "}", 1),
        "beyond": sample.source.replace("out_row[i] *= inv", "out_row[i + 1] *= inv"),
        "another value": sample.source.replace("1.0f / buf[0]", "1.01f / buf[0]"),
        "stuck": sample.source.replace("buf[tid] = local_sum;", "if (tid) __syncthreads();"),
    }
    for fault, source in wrong.items():
        assert differing(sample, [source], tmp_path), fault
    assert not differing(sample, [sample.source], tmp_path)


@needs_compiler
def test_copies_under_way_are_seen(tmp_path):
    sample = SAMPLES["matmul_half"]
    source = proposed("matmul_half")[0].source
    wait, barrier = re.search(
        r"__pipeline_wait_prior\((\d)\);(\s+__syncthreads\(\);)", source
    ).groups()
    wrong = {
        "no wait": source.replace(f"wait_prior({wait})", f"wait_prior({int(wait) + 1})"),
        "no barrier": source.replace(barrier, "", 1),
        "beyond": source.replace("<= depth_) copy_", "<= depth_ + 32) copy_"),
    }
    for fault, text in wrong.items():
        assert text != source and differing(sample, [text], tmp_path), fault


@needs_nvcc
@pytest.mark.parametrize(
    "name, method, wide",
    [
        ("add", "vectorize_global_loads", 2), ("gelu_half", "vectorize_global_loads", 1),
        ("scale_bias_bf16_macro", "vectorize_global_loads", 1),
        ("softmax_thread_a_row", "read_row_once", 1), ("sum_atomic_each", "avoid_atomics_reduce", 1),
        ("matmul", "share_tiles", 4), ("matmul_half", "switch_to_mma_or_wgmma", 4),
    ],
)  # fmt: skip
def test_wide_accesses_are_single_instructions(tmp_path, name, method, wide):
    action = next(action for action in proposed(name) if action.method == method)
    built = compiling.build(action.source, 90, tmp_path)
    (takes,) = compiling.used(built.notes)
    assert takes.stack_bytes <= 16
    loads = re.findall(r"ld\.global\S*\.v4|cp\.async\.cg\.shared\.global \[.*\], 16,", built.ptx)
    assert len(loads) >= wide


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_every_proposal_compiles(tmp_path, name):
    for action in proposed(name, 48):
        compiling.build(action.source, 90, tmp_path)


def test_the_best_is_expected_of_what_changes_the_plan():
    firsts = {name: proposed(name)[0] for name in SAMPLES if not SAMPLES[name].refuses}
    assert all(action.method not in SMALL for action in firsts.values())
    assert firsts["matmul_half"].method == "switch_to_mma_or_wgmma"
    assert launch_of(firsts["add"].source).grid == (2, 1, 1)  # a quarter of the blocks


def test_a_contract_says_widths_and_lengths():
    arguments = [
        {"name": "a", "type": "tensor", "tensor_spec": {"shape": [4, 8], "dtype": "float32",
                                                        "init": {"kind": "zeros"}}},
        {"name": "b", "type": "int", "value": 8},
        {"name": "c", "type": "float", "value": 0.5},
    ]  # fmt: skip
    source = "__global__ void f(const float* x, int width, float eps) {}"
    assert values_of(source, "f", arguments) == {"x": 32, "width": 8}
    assert values_of("no kernel", "f", arguments) == {}


@pytest.mark.parametrize(
    "body",
    [
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = y[i",
        "asm(\"bar.sync 0;\"); x[threadIdx.x] = 1;",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = __shfl_down_sync(~0u, y[i], 1);",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = y[i] + threadIdx.x;",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; static int k; if (i < n) x[i] = y[i] + k;",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; float* p = x; if (i < n) { p += i; *p = y[i]; }",
        "for (int i = threadIdx.x; i < n; i += blockDim.x) { if (y[i] < 0) break; x[i] = y[i]; }",
        "for (int i = threadIdx.x; i < n; i += blockDim.x) x[blockDim.x * i] = y[i] * clock();",
        "#if 1\nint i = threadIdx.x;\n#endif\nx[0] = 1;",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; goto end; end: x[i] = 0;",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; auto f = [&](int k) { x[k] = y[k]; }; f(i);",
        "const auto [a, b] = make_float2(1, 2); x[threadIdx.x] = a;",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; int& r = i; if (r < n) x[r] = y[r];",
        "int i = 3 * (blockIdx.x * blockDim.x + threadIdx.x); if (i < n) x[i] = y[i];",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n || i == 7) x[i] = y[i];",
        "",
        ";;",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_left_alone(body):
    source = f"#pragma launch grid(4) block(64)\n__global__ void f(float* x, const float* y, int n) {{ {body} }}\n"
    found = {action.method for action in proposals(source, "", 48, {"n": 256, "x": 256, "y": 256})}
    assert found <= SMALL
