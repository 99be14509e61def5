"""Kernels of an older SDK in today's NKI: equal results, the same instructions, comments kept."""

import json
from pathlib import Path

import numpy as np
import pytest
from kernel_heads import neuronxcc_kernel, nki_kernel

from accelopt.cli.translate import told
from accelopt.errors import ConfigError
from accelopt.kernels.nki.benchmark import read_benchmark
from accelopt.kernels.nki.translation.translate import translate, translate_file
from accelopt.shipped import shipped_folder
from accelopt.sim.dialects.dialect import dialect_of_source

KERNELS = shipped_folder() / "NKIBench" / "kernels"


def f(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


SMALL = {
    "adamw": (f(200, 1024), f(200, 1024), f(200, 1024), abs(f(200, 1024))),
    "add_rmsnorm_matmul": (f(256, 256), f(256, 1024), 1e-5, f(256, 256), f(256)),
    "bmm": (f(2, 256, 64), f(2, 64, 1024)),
    "bmm_softmax": (f(2, 128, 64), f(2, 64, 1024)),
    "gqa_full": (f(2, 128, 4, 128), f(1, 1, 4, 128, 2, 128), f(1, 4, 128, 256)),
    "lora": (f(1, 2, 128, 2, 128), f(2, 128, 512), f(2, 128, 128), f(128, 512)),
    "mamba": (f(128, 256), f(128, 256), f(128, 4), f(4, 256), f(4, 256)),
    "matmul": (f(2, 128, 2, 128), f(2, 128, 512)),
    "matmul_add_rmsnorm": (f(256, 256), f(256, 512), 1e-5, f(256, 512), f(512)),
    "rmsnorm_matmul": (f(2, 128, 256), f(2, 128, 1024)),
    "rope_single_freq_apply": (f(128, 1024), f(64, 1024), f(64, 1024)),
    "silu": (f(128, 4, 2048),),
    "swiglu": (f(1, 2, 128, 2, 128), f(2, 128, 512), f(4, 128, 512), f(2, 128, 512)),
    "transpose_matmul": (f(128, 2, 256), f(128, 2, 700)),
}
"""Arguments of NKIBench's kernels at sizes that take a moment; their sources hold for any."""
MORE = {"mamba": {"copy"}, "matmul_add_rmsnorm": {"copy"}, "add_rmsnorm_matmul": {"copy"}}
"""What the translation needs besides: rows repeated on all partitions become tiles."""


def source_of(problem, folder=KERNELS.parent):
    summary = json.loads((folder / "summary.json").read_text())
    [case] = summary[problem]["cases"].values()
    return (folder / case["impls"][0]["kernel"]).read_text()


# Its last columns are masked, and some BLAS kernels (OpenBLAS for Haswell) round a product of another
# width otherwise.
ROUNDING = {"transpose_matmul": 5e-7}


@pytest.mark.parametrize("problem", SMALL)
def test_nkibench(problem):
    given, source, rounding = SMALL[problem], source_of(problem), ROUNDING.get(problem, 0)
    there = translate(source, given)
    assert there.complete and there.proof.difference <= rounding, there
    assert set(there.proof.before) <= MORE.get(problem, set())
    assert there.source == source_of(problem, KERNELS.parent / "nki")
    comments = [line.strip() for line in source.splitlines() if line.strip().startswith("#")]
    assert [comment for comment in comments if comment in there.source] == comments


def test_all_baselines_are_there_in_the_nki_dialect():
    cases, broken = read_benchmark(KERNELS.parent / "nki")
    assert not broken and {case.problem for case in cases} == set(SMALL)
    for case in cases:
        assert dialect_of_source(Path(case.kernel).read_text()) == "nki"


SUMS = """
from neuronxcc import nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((2, nl.par_dim(128), 64), dtype=nl.float32)
    for i in nl.affine_range(2):
        for k in nl.sequential_range(4):
            tile = nl.load(x[k])
            doubled = nl.multiply(tile, 2.0)
            total[i, 0:128, 0:64] += doubled
        total[i, 0:128, 0:64] += 1.0
    nl.store(out, total[1])
    return out
"""


SAMPLES = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki import benchmark


@nki.jit
def kernel(x: nki.tensor):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    def multiply(n):
        sums[n, :, :] += nisa.nc_matmul(held, turned)

    turned = nl.load(x)
    identity = nl.shared_constant(np.identity(128, dtype=np.int8), dtype=nl.{dtype})
    held = nl.copy(nl.load(identity), dtype=x.dtype)
    sums = nl.zeros((2, nl.par_dim(128), 64), dtype=nl.float32, buffer=nl.psum)
    for n in nl.sequential_range(2, directives=nki.compiler.no_reorder()):
        multiply(n)
    nl.store(out, nl.add(sums[0], sums[1]))
    return out
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_the_vendors_attention_samples_write(dtype):
    """attention_kernels.py of nki-samples (December 2025): a constant of another format, block dimensions that a
    function uses above the line that makes them, directives of a loop, an import and an annotation of names that
    nki lacks."""
    there = translate(SAMPLES.format(dtype=dtype), (f(128, 64),))
    assert there.complete, there
    assert "benchmark" not in there.source and "x: nl.ndarray" in there.source
    assert ("ml_dtypes.bfloat16" in there.source) is (dtype == "bfloat16")


OLDER = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

place = nki.compiler.psum.mod_alloc


@nki.jit
def base(x, causal=False):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
{lines}
    return out
{below}
"""
LAUNCHED = """
    i = nl.program_id(0)
    n = x.shape[0] // nl.num_programs(0)
    nl.store(out[i * n : (i + 1) * n], nl.load(x[i * n : (i + 1) * n]))
"""
SUMMED = """
    total = nl.ndarray((2, nl.par_dim(64), 64), dtype=nl.float32)
    for k in nl.affine_range(4):
        for i in nl.affine_range(2):
            t = nl.load(x[i * 64 : (i + 1) * 64])
            total[i] = nl.loop_reduce(t, op=nl.add, loop_indices=[k])
    for i in nl.affine_range(2):
        nl.store(out[i * 64 : (i + 1) * 64], total[i])
"""
WINDOWS = """
    nl.store(out, nl.load(x))
    for n in nl.affine_range(2):
        i, k, j = nl.mgrid[0:64, 0:3, 0:64]
        t = nl.load(x[n * 64 + i + k, j], mask=(n * 64 + i < 126))
        at, over = nl.mgrid[0:64, 0:64]
        nl.store(out[n * 64 + at, over], nl.max(t, axis=1), mask=(n * 64 + at < 126))
"""
BLOCKS = """
    held = nl.load(x)
    sums = nl.ndarray((40, nl.par_dim(64), 128), dtype=nl.float32, buffer={buffer})
    def product(n):
        sums[n] = nisa.nc_transpose(held)
        {used}
    for n in nl.affine_range(40):
        product(n)
    nl.store(out, nl.load(x))
    {after}
"""
USED = "nl.store(out[0:64, 0:64], nl.copy(sums[n])[:, 0:64])"
BRANCH = """
    t = nl.load(x)
    if causal:
        i, j = nl.mgrid[0:128, 0:64]
        t = nisa.affine_select(i >= j, t, 0.0)
    nl.store(out, nl.load(x))
"""


@pytest.mark.parametrize(
    ("lines", "below", "has", "has_not"),
    [
        (LAUNCHED, "kernel = base[4]", "for program_0 in range(grid[0]):", "program_id"),
        (LAUNCHED, "def run(x):\n    return base[x.shape[0] // 32](x)", "base[1](x, grid=(x", "d(0)"),
        (SUMMED, "", "dst=total[:, i], data1=total[:, i]", "loop_reduce"),
        (WINDOWS, "", "x.ap(", "mgrid"),
        (BLOCKS.format(buffer="nl.psum", used=USED, after=""), "", "dst=sums, data=held", "40, 128"),
        (BLOCKS.format(buffer="place(base_bank=0)", used=USED, after=""), "", "dst=sums, data", "place"),
        (BLOCKS.format(buffer="nl.psum", used="pass", after="nl.store(out[0:64], sums[3][:, 0:64])"), "",
         "(64, 40, 128), dtype=nl.float32, buffer=nl.sbuf)", "psum)\n    def"),
        (BRANCH, "", "raise NotImplementedError(\"not translated: affine_select", "nki.compiler"),
    ],
)  # fmt: skip
def test_what_older_samples_do_with_memory_grids_and_windows(lines, below, has, has_not):
    """Kernels of nki-samples (December 2025): grids, sums over a loop, overlapping windows that a mask ends, more
    blocks than PSUM holds, of which one at a time or all are in use, places chosen by the author, and a branch that
    the arguments do not come to."""
    source = OLDER.format(lines=lines, below=below or "kernel = base")
    there = translate(source, (f(128, 64),))
    assert there.complete, there
    assert has in there.source and has_not not in there.source, there.source


def test_sums_of_whole_tiles_and_the_package_by_its_parent():
    given = (f(4, 128, 64),)
    there = translate(SUMS, given)
    assert there.complete and "\nimport nki\n" in there.source and "neuronxcc" not in there.source
    assert there.source.count("nisa.tensor_tensor(") == 1


OLD = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
from neuronxcc.nki.language import par_dim


@nki.jit
def kernel(a, b):
    # what it returns
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.load(a)
    u = nl.load(b)  # the other
{lines}
    nl.store(out, r)
    return out
"""
FORMS = {
    "operators": "    r = (t + u) * 2.0 - t / 4.0",
    "a column": "    m = nl.max(t, axis=1, keepdims=True)\n    r = nl.exp(t - m)",
    "a column on the left": "    m = nl.mean(t, axis=[1], keepdims=True)\n    r = nl.subtract(m, t)",
    "a nested instruction": "    r = nl.add(nisa.activation(op=nl.exp, data=t, scale=0.5), u)",
    "into a slice": "    r = nl.ndarray((128, 64), dtype=nl.float32)\n"
    "    for i in nl.affine_range(2):\n"
    "        r[:, i * 32 : (i + 1) * 32] = nisa.tensor_tensor(\n"
    "            t[:, nl.ds(i * 32, 32)], u[:, nl.ds(i * 32, 32)], op=np.multiply)",
    "a transpose": "    x = nisa.nc_transpose(t)\n    r = nl.copy(nisa.nc_transpose(nl.copy(x)))",
    "block dimensions": "    r = nl.ndarray((128, 64), dtype=nl.float32)\n"
    "    k = nl.ndarray((2, par_dim(128), 32), dtype=nl.float32)\n"
    "    for i in nl.affine_range(2):\n        k[i] = nl.copy(t[:, nl.ds(i * 32, 32)])\n"
    "    for i in nl.affine_range(2):\n        r[:, nl.ds(i * 32, 32)] = nl.copy(k[i, :, :])",
    "in place": "    r = nl.zeros((128, 64), dtype=nl.float32)\n"
    "    for i in nl.sequential_range(3):\n        r += nl.multiply(t, u)",
    "a narrower format": "    h = nl.copy(t, dtype=nl.bfloat16)\n    r = nl.add(h, u)",
    "statistics": "    s = nisa.bn_aggr(nisa.bn_stats(t))\n"
    "    r = nisa.tensor_scalar(t, nl.subtract, s[:, 0:1], op1=nl.multiply, operand1=s[:, 1:2])",
    "a scan": "    r = nisa.tensor_tensor_scan(t, u, initial=0, op0=nl.multiply, op1=nl.add)",
    "positions": "    i, j = nl.arange(128)[:, None], nl.arange(64)[None, :]\n"
    "    p = nisa.iota(2 * i + j + 3, dtype=nl.float32)\n"
    "    r = nl.add(nisa.affine_select(pred=(i >= 2 * j), on_true_tile=t, on_false_value=0.0), p)",
    "a shuffle and a search": "    r = nl.zeros((128, 64), dtype=nl.float32)\n"
    "    nisa.nc_stream_shuffle(t, r, [31 - n for n in range(32)])\n"
    "    m = nisa.max8(src=u)\n    r = nl.add(r, m[:, 0:1])",
    "one row on all partitions": "    r = nl.ndarray((128, 64), dtype=nl.float32)\n"
    "    nisa.dma_copy(dst=r, src=a[5:6, :])\n    r = nl.add(r, t)",
    "rows and a mask": "    i = nl.arange(128)[:, None]\n    j = nl.arange(64)[None, :]\n"
    "    v = nl.load(a[i, j], mask=(i < 128))\n    r = nl.add(v, u)",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form(form):
    given = (f(128, 64), f(128, 64))
    source = OLD.format(lines=FORMS[form]).replace(
        "import neuronxcc.nki as", "import numpy as np\nimport neuronxcc.nki as", 1
    )
    there = translate(source, given)
    assert there.complete, there
    assert "# what it returns" in there.source and "# the other" in there.source


MASKED = "import numpy as np\n" + neuronxcc_kernel("""def kernel(a, b):
    rows, n = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:128, 0:n]
    whole = nl.load(b)
    column = nl.max(whole, axis=1, keepdims=True)
    for k in nl.affine_range((rows + 127) // 128):
        inside = k * 128 + i < rows
        t = nl.load(a[k * 128 + i, j], mask=inside)
{lines}
        nl.store(out[k * 128 + i, j], r, mask=inside)
    return out
""")
MASKS = {
    "into a part": "        r = nl.zeros((128, 64), dtype=nl.float32)\n"
    "        r[i, j] = nisa.tensor_tensor(t, whole, op=np.add, mask=inside)",
    "a load into a part": "        r = nl.zeros((128, 64), dtype=nl.float32)\n"
    "        r[i, j] = nl.load(a[k * 128 + i, j], mask=inside)\n"
    "        r = nisa.tensor_scalar(r, np.subtract, nisa.tensor_reduce(np.add, r, axis=[1]))",
    "in place": "        r = nl.load(a[k * 128 + i, j], mask=inside)\n        r[i, j] += 1.0",
    "a sum of some": "        r = nl.multiply(t, nl.sum(t, axis=1, keepdims=True, mask=(j < 40)))",
    "a maximum of some": "        m = nisa.tensor_reduce(np.max, whole, axis=[1], mask=(2 * j < 41))\n"
    "        r = nisa.tensor_scalar(whole, np.subtract, m)",
    "functions": "        r = nl.reciprocal(nl.add(nl.exp(t, mask=inside), 1.0), mask=inside)",
    "a choice by position": "        r = nisa.affine_select(pred=(j < 40), on_true_tile=t, on_false_value=0.0)",
    "indices made in place": "        r = nl.load(a[k * 128 + nl.arange(128)[:, None], nl.arange(64)[None, :]],\n"
    "                    mask=(k * 128 + nl.arange(128)[:, None] < rows))",
    "whole tiles": "        s = nl.rsqrt(nl.sum(nl.square(t), axis=[1], keepdims=True) / n)\n"
    "        u = nl.where(nl.greater(t, whole), t * s * whole, nl.multiply(t, column))\n"
    "        v = nisa.tensor_tensor(whole, u, op=nl.add)\n"
    "        r = nl.subtract(v, u * whole)",
}


@pytest.mark.parametrize("form", MASKS)
def test_masks(form):
    given = (f(300, 64), f(128, 64))
    there = translate(MASKED.format(lines=MASKS[form]), given)
    assert there.complete and there.proof.equal_programs, there


GONE = {
    "    r = nl.loop_reduce(t, op=nl.add, loop_indices=[])": "accumulate with nisa.tensor_tensor",
}


@pytest.mark.parametrize("lines", GONE)
def test_what_has_no_counterpart_is_listed_by_its_line(lines):
    source = OLD.format(lines=lines)
    found = translate(source, (f(128, 64), f(128, 64)))
    assert not found.complete
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "    r = " in text)
    assert any(at == line and GONE[lines] in said for at, said in found.problems), found.problems


def test_a_kernel_that_is_there_already_is_told_so():
    """What of an older kernel of `nki` the newest version refuses, another command says."""
    with pytest.raises(ConfigError, match=r"already; `accelopt check --nki 0\.7` says"):
        translate("import nki\n\n@nki.jit\ndef kernel(x):\n    return x\n", [])


NEW = nki_kernel("""def kernel(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    t, u = nl.load(a), nl.load(b)
    r = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
{lines}
    nisa.dma_copy(dst=out, src=r)
    return out
""")
DEVICE_LOOPS = """
    total = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(total, value=0)
    number = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(number, value=3)
    stop = nisa.register_alloc()
    nisa.register_load(stop, number)
    width = 0
    for i in nl.dynamic_range(stop):  # as often as it says
        width = 64
        nisa.tensor_tensor(dst=total, data1=total, data2=t, op=nl.add)
    for k in nl.dynamic_range(0, 4, 2):
        nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=2.0)
    while stop:
        nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(dst=number, data=number, op0=nl.subtract, operand0=1)
        nisa.register_load(stop, number)
    nisa.tensor_copy(dst=r[:, 0:width], src=total[:, 0:width])
"""


def test_loops_of_the_device_become_those_of_the_newest():
    """SDK 2.33: NKI 0.7 has fori_loop and while_loop for dynamic_range and `while` on a register."""
    given, source = (f(128, 64), f(128, 64)), NEW.format(lines=DEVICE_LOOPS)
    found = translate(source, given)
    assert found.complete and found.proof.difference == 0, found
    for line in ("nonlocal width", "nl.fori_loop(0, stop, body)", "for k in range(0, 4, 2):",
                 "def body_2(stop):", "return stop", "nl.while_loop(stop, body_2)"):  # fmt: skip
        assert f" {line}\n" in found.source
    assert found.source.count("nl.dynamic_range") == found.source.count("while ") == 0
    with pytest.raises(ConfigError, match="in the dialect nki already"):
        translate(found.source, given)


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [("    width = 0\n", "", "width"),
     ("    nisa.tensor_copy(dst=r", "    nisa.register_store(number, stop)\n    nisa.tensor_copy(dst=r", "stop")],
)  # fmt: skip
def test_a_loop_of_the_device_that_can_be_no_function_is_named(before, after, name):
    assert before in DEVICE_LOOPS
    source = NEW.format(lines=DEVICE_LOOPS.replace(before, after))
    found = translate(source, (f(128, 64), f(128, 64)))
    [(line, said)] = found.problems
    assert f"'{name}', which a loop of the device sets and what follows it reads," in said
    assert source.splitlines()[line - 1].startswith(("    for i in nl.dynamic", "    while stop"))
    assert not found.complete and "was removed in NKI 0.7" in found.failure


SEVERAL = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import torch_that_is_absent

def doubled(tile):
    return nl.add(tile, tile)

@nki.baremetal
def older(x):
    return nisa.nc_matmul(nl.load(x), nl.load(x))

@nki.compiler.skip_middle_end_transformations
@nki.jit
def shifted(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out[0:64], doubled(nl.load(x[0:64])))
    nl.store(out[64:128], doubled(nl.load(x[64:128])))
    return out

if __name__ == "__main__":
    older(torch_that_is_absent.ones(128, 64))

kernel = shifted
"""


def test_only_what_the_kernel_uses_is_translated(tmp_path):
    """As the files of public tutorials are: a kernel after the other, hints for the compiler, host code with
    packages that are not there."""
    (tmp_path / "kernel.py").write_text(SEVERAL)
    found = translate_file(tmp_path / "kernel.py", [f(128, 64)], 60)
    assert found.complete, found
    assert "older" not in found.source and "skip_middle" not in found.source
    assert "def doubled" in found.source and "\n\n\n\n" not in found.source
    assert "Left out, since the kernel does not use them: older." in told(
        found, tmp_path / "kernel.py"
    )


def test_the_command_writes_the_translation(tmp_path):
    from typer.testing import CliRunner

    from accelopt.cli.app import app, command

    command()
    (tmp_path / "kernel.py").write_text(OLD.format(lines=FORMS["a nested instruction"]))
    (tmp_path / "reference.py").write_text(
        "import numpy as np\n"
        "def get_inputs():\n    return [np.random.normal(size=(128, 64)).astype(np.float32)] * 2\n"
        "def forward(a, b):\n    return a\n"
    )
    given = [
        "translate",
        str(tmp_path / "kernel.py"),
        "--reference",
        str(tmp_path / "reference.py"),
    ]
    said = CliRunner().invoke(app, given)
    assert said.exit_code == 0, said.output
    assert "Results: equal." in said.output
    assert "\nimport nki\n" in (tmp_path / "kernel_nki.py").read_text()
    refused = CliRunner().invoke(app, [*given, "--to", "neuronxcc"])
    assert "--to neuronxcc: kernels are translated to nki" in str(refused.exception)
