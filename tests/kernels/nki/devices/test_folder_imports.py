"""What a kernel imports: files of its folder, and host modules that are not installed."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from kernel_heads import neuronxcc_of, numpy_reference

from accelopt.evaluation import Case, Scrutiny, Status
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.nki.devices.kernel_folder import kernel_folder, write_kernel
from accelopt.kernels.nki.devices.protocol import KernelFailure, TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.language import NKI
from accelopt.kernels.nki.referee.precision import Precision
from accelopt.kernels.nki.referee.text_rules import check_text
from accelopt.sandbox.workers import WorkerPool

LANGUAGE = "import neuronxcc.nki.language as nl\n"
HELPER = LANGUAGE + "\n\ndef changed(tile):\n    return nl.multiply(tile, 2.0)\n"
KERNEL = neuronxcc_of("x")("nl.store(out, changed(nl.load(x)))").replace(
    LANGUAGE, LANGUAGE + "IMPORT\n"
)
REFERENCE = numpy_reference("2 * x", x=(128, 64))
X = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)


def written(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / next(iter(files))


def result_of(path):
    argument = TensorArgument(X.shape, "float32")
    return SimulatedDevice("trn1").compile(str(path), [argument]).run([X])[0]


LAYOUTS = {
    "beside it": {
        "kernel.py": KERNEL.replace("IMPORT", "from helper import changed"),
        "helper.py": HELPER,
    },
    "by another": {
        "kernel.py": KERNEL.replace("IMPORT", "import first\nchanged = first.changed"),
        "first.py": "from second import *\n",
        "second.py": HELPER,
    },
    "in a package": {
        "kernel.py": KERNEL.replace("IMPORT", "from tools.tiles import changed"),
        "tools/__init__.py": "",
        "tools/tiles.py": HELPER,
    },
    "relatively": {
        "own/kernel.py": KERNEL.replace("IMPORT", "from .helper import changed"),
        "own/__init__.py": "",
        "own/helper.py": HELPER,
    },
    "relatively without a package": {
        "own/kernel.py": KERNEL.replace("IMPORT", "from .helper import changed"),
        "own/helper.py": HELPER,
    },
    "of the package above": {
        "own/kernels/kernel.py": KERNEL.replace("IMPORT", "from ..helper import changed"),
        "own/__init__.py": "",
        "own/kernels/__init__.py": "",
        "own/helper.py": HELPER,
    },
    "a host function": {
        "kernel.py": "from helper import run as kernel\n",
        "helper.py": KERNEL.replace("IMPORT", "")
        .replace("def kernel", "def doubled")
        .replace("changed(nl.load(x))", "nl.load(x[nl.ds(nl.program_id(0) * 128, 128), :]) * 2.0")
        + "\n\ndef run(x):\n    return doubled[1](x)\n",
    },
    "the kernel itself": {
        "kernel.py": "from helper import kernel\n",
        "helper.py": KERNEL.replace("changed(nl.load(x))", "nl.load(x) * 2.0").replace("IMPORT", ""),
    },
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kernel_imports_files_of_its_folder(layout, tmp_path):
    """Vendor's samples: a tutorial's kernels import a module beside them (nki-samples,
    tutorials/tensor_addition, mxfp-matmul)."""
    path = written(tmp_path, LAYOUTS[layout])
    np.testing.assert_array_equal(result_of(path), 2 * X)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "of the package above"])
def test_a_copy_of_a_kernel_has_what_it_imports_beside_it(layout, tmp_path):
    """A run's best.py can be loaded where it lies."""
    path = written(tmp_path / "there", LAYOUTS[layout])
    copy = tmp_path / "run" / "best.py"
    write_kernel(copy, path.read_text(), path)
    for file in (tmp_path / "there").rglob("*.py"):
        file.unlink()
    np.testing.assert_array_equal(result_of(copy), 2 * X)


def test_only_what_is_imported_of_the_folder_comes_along(tmp_path):
    """A kernel sees the files that it names in an import, and no other."""
    files = {**LAYOUTS["beside it"], "reference.py": REFERENCE, "helper2.py": "", "data.txt": "1"}
    path = written(tmp_path, files)
    assert list(kernel_folder(path).files) == ["helper.py"]
    dynamic = KERNEL.replace("IMPORT", "import importlib\nchanged = importlib.import_module(NAME)")
    path.write_text(dynamic.replace("NAME", "'reference'"))
    with pytest.raises(KernelFailure, match="reference"):
        result_of(path)


def case_of(path):
    (path.parent / "reference.py").write_text(REFERENCE)
    task = str(path.parent / "reference.py")
    return Case(problem="p", values={}, kernel=str(path), task=task)


def test_another_helper_is_another_kernel(tmp_path):
    """The verdict on a kernel is kept under the texts of all that it imports."""
    path = written(tmp_path / "a", LAYOUTS["beside it"])
    case, cache = case_of(path), str(tmp_path / "cache")

    async def verdict():
        options = LanguageOptions(tmp_path / "run", scrutiny=Scrutiny.QUICK)
        async with WorkerPool(1, cache=cache) as pool:
            return (await NKI(pool, options).evaluate(case, path.read_text())).status

    assert asyncio.run(verdict()) is Status.CORRECT
    (path.parent / "helper.py").write_text(HELPER.replace("2.0", "3.0"))
    assert asyncio.run(verdict()) is Status.WRONG_NUMBERS


def test_the_rules_of_the_text_hold_for_what_it_imports(tmp_path):
    """A kernel asks the machine as well by the hand of a helper; what the kernel cannot reach of it
    may do so."""
    path = written(tmp_path, LAYOUTS["beside it"])
    host = "\n\ndef report():\n    import os\n    print(os.getpid())\n"
    (tmp_path / "helper.py").write_text(HELPER + host)
    check_text(path, Precision(), published=False)
    (tmp_path / "helper.py").write_text(
        HELPER.replace("2.0)", "float(len(open('/etc/passwd').read())))")
    )
    with pytest.raises(KernelFailure, match=r"in helper\.py, which the kernel imports: .*open"):
        check_text(path, Precision(), published=False)


IMPORTED = """
import logging
from typing import List, Optional

import torch_of_nobody as torch
import torch_of_nobody.nn.functional as F
from tqdm_of_nobody import tqdm
from torch_of_nobody.utils import data, Dataset

logging.getLogger("kernel").setLevel(logging.OFF)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF, MASK = torch.float32, torch.zeros(3)[0] + 1

try:
    import xla_of_nobody
    THERE = True
except ImportError:
    THERE = False
assert not THERE


class Module(torch.nn.Module, Dataset):
    weight: torch.Tensor = torch.zeros(3)

    def forward(self, x: "torch.Tensor") -> torch.Tensor:
        return F.relu(x)


@torch.no_grad()
@torch.jit.script
def host(x: torch.Tensor | None, y: Optional[torch.Tensor] = None, *z: List[torch.Tensor]):
    with torch.no_grad():
        return isinstance(x, torch.Tensor)


def changed(tile):
    return nl.multiply(tile, FACTOR)
"""


def with_absent(factor):
    return KERNEL.replace("IMPORT", IMPORTED.replace("FACTOR", factor))


def test_absent_host_modules_do_not_matter_to_a_trace_without_them(tmp_path):
    """Public files import torch, tqdm and the like for tests beside their kernels, and use
    `logging.OFF`, which importing the vendor's package makes (a report on the attention tutorial)."""
    path = written(tmp_path, {"kernel.py": with_absent("2.0")})
    np.testing.assert_array_equal(result_of(path), 2 * X)


@pytest.mark.parametrize(
    "factor, used",
    {"torch.float32": "torch_of_nobody.float32", "HALF + 1": "torch_of_nobody.float32",
     "F.scale(2.0)": "torch_of_nobody.nn.functional.scale"}.items(),
)  # fmt: skip
def test_a_trace_that_uses_an_absent_module_says_which(factor, used, tmp_path):
    """One sentence: what is used, where, and what a trace may use."""
    path = written(tmp_path, {"kernel.py": with_absent(factor)})
    with pytest.raises(KernelFailure) as caught:
        result_of(path)
    line = 1 + path.read_text().splitlines().index(f"    return nl.multiply(tile, {factor})")
    assert f"uses {used}, and torch_of_nobody is neither installed nor" in caught.value.message
    assert f"{Path(path).name}:{line}" in caught.value.message
