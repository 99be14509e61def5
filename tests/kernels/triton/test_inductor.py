"""Inductor's text as a solution: what is kept of it, what is refused, and that it computes the reference."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from flb_traces import installed

from accelopt.kernels.gpu.bench.source.source_rules import violations
from accelopt.kernels.gpu.cases import one_file
from accelopt.kernels.triton.inductor import Unread, Written, solution_source

BENCH = Path(__file__).parents[1] / "gpu" / "bench"
NAME = "triton_red_fused_softmax_0"
# Written by hand in the form of torch 2.11's Inductor for a softmax over rows (an H100's run of 26 November 2026).
TEXT = f"""
import torch
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
{NAME} = async_compile.triton('{NAME}', '''
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics

@triton_heuristics.reduction(
    size_hints={{'x': 64, 'r0_': 128}},
    inductor_meta={{'grid_type': 'Grid1D', 'autotune_hints': set(), 'mutated_arg_names': []}},
)
@triton.jit
def {NAME}(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    largest = tl.full([XBLOCK, R0_BLOCK], float('-inf'), tl.float32)
    total = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    for r0_offset in range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        mask = (r0_index < r0_numel) & xmask
        tmp0 = tl.load(in_ptr0 + (r0_index + 96 * xindex), mask, other=0.0)
        up, down = triton_helpers.online_softmax_combine(largest, total, tmp0, False)
        largest = tl.where(mask, up, largest)
        total = tl.where(mask, down, total)
    top, under = triton_helpers.online_softmax_reduce(largest, total, 1, False)
    for r0_offset in range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        mask = (r0_index < r0_numel) & xmask
        tmp1 = tl.load(in_ptr0 + (r0_index + 96 * xindex), mask, other=0.0)
        tl.store(out_ptr0 + (r0_index + 96 * xindex), tl.exp(tmp1 - top[:, None]) / under[:, None], mask)
''', device_str='cuda')

class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        s7 = arg0_1
        assert_size_stride(arg1_1, (s7, 96), (96, 1))
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            buf2 = empty_strided_cuda((s7, 96), (96, 1), torch.float32)
            stream0 = get_raw_stream(0)
            {NAME}.run(arg1_1, buf2, s7, 96, stream=stream0)
            del arg1_1
        return (buf2, )
"""
CHOSEN = {NAME: {"XBLOCK": 2, "R0_BLOCK": 64, "num_warps": 4, "num_stages": 1}}
ORIGINS = ("L['x'].size()[0]", "L['x']")


def made(text=TEXT, origins=ORIGINS, numbers=None):
    parameters = ["x", *(numbers or {})]
    return solution_source(Written(text, origins, CHOSEN, parameters, numbers or {}), "run")


def test_the_launch_has_the_autotuners_choice_as_numbers_and_a_grid_of_its_own():
    source = made()
    assert (
        '[lambda META: (triton.cdiv(s7, META["XBLOCK"]),)](arg1_1, buf2, s7, 96, XBLOCK=2' in source
    )
    assert "triton_helpers" not in source and "_inductor" not in source
    assert not violations(one_file("a", "d", "x", "main.py::run", source))


def test_a_number_that_was_compiled_in_is_asked_for():
    assert "if scale != 0.5:" in made(numbers={"scale": 0.5})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("del arg1_1", "extern_kernels.mm(buf2, buf2, out=buf2)", "it calls extern_kernels.mm"),
        ("online_softmax_combine", "rand", "triton_helpers.rand, which is not known"),
        ("'Grid1D'", "'SplitScanGrid'", "the grid of .* which is not known"),
        ("s7 = arg0_1", "s7 = torch.mm(arg1_1, arg1_1)", "it calls torch.mm"),
    ],
)
def test_what_is_no_triton_kernel_is_refused_in_a_sentence(before, after, said):
    with pytest.raises(Unread, match=said):
        made(TEXT.replace(before, after))


@pytest.mark.skipif(not installed("torch", "triton"), reason="needs torch and triton")
def test_the_solution_computes_what_the_reference_does():
    """By Triton's interpreter, on rows that two tiles of columns do not fill."""
    definition = {
        "name": "softmax", "op_type": "softmax", "axes": {"n": {"type": "var"}, "m": {"type": "const", "value": 96}},
        "inputs": {"x": {"shape": ["n", "m"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["n", "m"], "dtype": "float32"}},
        "reference": "import torch\ndef run(x):\n    return torch.softmax(x, -1)\n",
    }  # fmt: skip
    workload = {
        "definition": "softmax",
        "workload": {"axes": {"n": 37}, "inputs": {"x": {"type": "random"}}, "uuid": "a"},
    }
    solution = one_file("a", "softmax", "x", "main.py::run", made()).model_dump(
        mode="json", exclude_unset=True
    )
    case = json.dumps({"definition": definition, "workload": workload, "solution": solution})
    done = subprocess.run(
        [sys.executable, str(BENCH / "interpreted.py")], input=case, text=True, capture_output=True,
        env={**os.environ, "TRITON_INTERPRET": "1"}, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-6
