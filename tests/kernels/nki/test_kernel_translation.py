"""Kernels of an older SDK in today's NKI: what they compute is written anew, in their authors' modules."""

from pathlib import Path

import pytest
from command_line import accelopt
from kernel_heads import function_of, nki_kernel, numpy_reference

from accelopt.errors import ConfigError
from accelopt.evaluation import Status
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.kernel_translation import translate_kernel, without_older

REFERENCE = numpy_reference("{result}", x="({rows}, 64)")
HEAD = """\
# Rows, doubled.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
from neuronxcc.nki import benchmark
import torch_that_is_absent

P = 128
TILE = nl.tile_size.pmax
"""
SEVERAL = f"""{HEAD}

def doubled(tile):
    return nl.add(tile, tile)


@nki.baremetal
def older(x):
    return nisa.nc_matmul(nl.load(x), nl.load(x))


@nki.compiler.skip_middle_end_transformations
@nki.jit
def shifted(x: nki.tensor):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for half in nl.affine_range(2):
        rows = nl.load(x[half * P : (half + 1) * P])
        nl.store(out[half * P : (half + 1) * P], doubled(rows))  # twice as much
    return out


if __name__ == "__main__":
    older(torch_that_is_absent.ones(128, 64))

kernel = shifted
"""
LAUNCHED = f"""{HEAD}

@nki.jit
def base(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    rows = nl.load(x[i * P : (i + 1) * P])
    nl.store(out[i * P : (i + 1) * P], rows + rows)
    return out


kernel = base[2]
"""
DEVICE_LOOP = function_of("x")("""
total, number = nl.load(x), nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
nisa.memset(number, value={number})
stop = nisa.register_alloc()
nisa.register_load(stop, number)
for i in nl.dynamic_range({stop}):
    nisa.tensor_tensor(dst=total, data1=total, data2=total, op=nl.add)
nisa.dma_copy(dst=out, src=total)
""")


def translated(folder: Path, kernel: str, rows: int = 256, result: str = "x + x"):
    (folder / "kernel.py").write_text(kernel)
    (folder / "reference.py").write_text(REFERENCE.format(rows=rows, result=result))
    target = TARGETS["trn2"]
    return translate_kernel(folder / "kernel.py", folder / "reference.py", target, cache=folder)


@pytest.mark.parametrize(("kernel", "name"), [(SEVERAL, "shifted"), (LAUNCHED, "base")])
def test_a_kernel_is_written_in_its_authors_module_without_what_is_older(kernel, name, tmp_path):
    """As files of public tutorials are: a kernel after the other, hints for the compiler, grids, imports of
    names that nki lacks, host code with packages that are not there."""
    found = translated(tmp_path, kernel)
    assert found.verdict.status is Status.CORRECT
    assert found.source.startswith("# Rows, doubled.\nimport nki\n")
    assert f"\n\n\n@nki.jit\ndef {name}(x):\n" in found.source
    assert found.source.endswith(f"\nkernel = {name}\n")
    for gone in (
        "neuronxcc",
        "older",
        "def doubled",
        "skip_middle",
        "benchmark",
        "base[",
        "\n\n\n\n",
    ):
        assert gone not in found.source.partition("\n")[2]


def test_a_kernel_of_an_older_nki_is_written_if_python_knows_its_loops(tmp_path):
    """SDK 2.33: NKI 0.7 has no dynamic_range."""
    older = nki_kernel(DEVICE_LOOP.format(number=3, stop="0, 3"))
    found = translated(tmp_path, older, 128, "x * 8")
    assert found.verdict.status is Status.CORRECT and "dynamic_range" not in found.source
    with pytest.raises(ConfigError, match=r"already; `accelopt check --nki 0\.7` says"):
        translated(tmp_path, found.source, 128, "x * 8")
    with pytest.raises(ConfigError, match=r"kernel.py:\d+: the device decides how often"):
        translated(tmp_path, nki_kernel(DEVICE_LOOP.format(number=3, stop="stop")), 128, "x * 8")


def test_what_others_use_that_goes_goes_with_it():
    made = "import nki\nimport nki.language as nl\n\n\n@nki.jit\ndef f(x):\n    return x\n"
    text = (
        "import neuronxcc.nki.language as nl\nn = nl.fp32\nm = n\nwidth = 4\n\n\n"
        "class Host:\n    kind = m\n\n\n@nl.jit\ndef f(x):\n    return n\n"
    )
    assert without_older(text, made, "f") == (
        "import nki\nimport nki.language as nl\nn = nl.fp32\nm = n\nwidth = 4\n\n\n"
        "class Host:\n    kind = m\n\n\n@nki.jit\ndef f(x):\n    return n\n"
    )
    without = text.replace("    return n", "    return x")
    assert without_older(without, made, "f") == made.replace("\n\n\n@", "\nwidth = 4\n\n\n@")


def test_the_command_writes_the_translation(tmp_path):
    (tmp_path / "kernel.py").write_text(LAUNCHED)
    (tmp_path / "reference.py").write_text(REFERENCE.format(rows=256, result="x + x"))
    given = ("translate", "kernel.py", "--reference", "reference.py")
    done = accelopt(*given, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Correct: " in done.stdout and "kernel_nki.py has the kernel." in done.stdout
    assert "\nimport nki\n" in (tmp_path / "kernel_nki.py").read_text()
    refused = accelopt(*given, "--to", "neuronxcc", folder=tmp_path)
    assert "--to neuronxcc: kernels are translated to nki" in refused.stdout + refused.stderr
