"""How many launches of public Triton kernels are lifted, and whether what is lifted is what they compute.

    python benchmarks/triton_reach.py FOLDER... [--only TEXT] [--interpreter PYTHON] [--seconds 60]

A folder holds checkouts; `triton_cases.py` says what of them is launched with which inputs. With
`--interpreter`, a Python that has torch and triton, the kernels are run there on the CPU
(`TRITON_INTERPRET=1`) and compared with the Algorithm's values. Prints a line a launch with the reason, file
and line where it is not lifted, and totals.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from triton_cases import CASES, SHELLS, Case

ENDED = "the interpreter's process ended"


def located(case: Case, folders: list[Path]) -> tuple[Path, Path] | None:
    """The file of a case and the folder that its package lies in."""
    for folder in folders:
        for file in folder.rglob(Path(case.file).name):
            if str(file).endswith(f"/{case.file}"):
                return file, Path(str(file)[: -len(case.file) - 1])
    return None


@contextlib.contextmanager
def shells(root: Path) -> Iterator[None]:
    """Packages without what their `__init__` imports. FlagGems is told its vendor, and has no cache of
    launches and no tuner of its own."""
    os.environ["GEMS_VENDOR"] = "nvidia"
    entries: Any = ModuleType("flag_gems.utils.libentry")
    sys.modules[entries.__name__] = entries
    entries.libentry = lambda: lambda kernel: kernel
    entries.libtuner = lambda configs, key, **_: (
        lambda kernel: importlib.import_module("triton").autotune(configs, key)(kernel)
    )
    for name in SHELLS:
        place = root / name.replace(".", "/")
        if place.is_dir():
            module = sys.modules[name] = ModuleType(name)
            module.__path__, module.__version__ = [str(place)], "1"  # type: ignore[attr-defined]
            if "." in name:
                parent, _, leaf = name.rpartition(".")
                setattr(sys.modules[parent], leaf, module)
    try:
        yield
    finally:
        tops = {name.partition(".")[0] for name in SHELLS}
        for name in [n for n in sys.modules if n.partition(".")[0] in tops]:
            del sys.modules[name]


def lifted(case: Case, file: Path, root: Path) -> Any:
    """The Algorithm of a case. Raises NotTraced."""
    from accelopt.kernels.triton.lift.lifting import lift_launches

    with shells(root):
        return lift_launches(file, case.call, case.inputs, folders=[str(root)]).algorithm


class _Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Packages that are not installed, for the interpreter: their names can be imported."""

    packages: ClassVar[set[str]] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        known = name.partition(".")[0] in self.packages
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec: Any) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = _named  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        return None


def _named(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    newer = dict.fromkeys(("__ge__", "__gt__"), lambda *_: True)
    return type(name, (), {"__init__": lambda *_, **__: None, **newer})


SHIMS = """import contextlib
import torch
import triton
import triton.language as tl

MAX_FUSED_SIZE = 65536
next_power_of_2 = triton.next_power_of_2
triton_cast = tl.cast
is_cdna = lambda: False
torch_device_stream = torch_gpu_device = lambda device: contextlib.nullcontext()
calculate_settings = lambda n: (triton.next_power_of_2(n), 4)


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def rsqrt(x):
    return 1 / tl.sqrt(x)


triton_tanh = tanh
"""
"""What the interpreter lacks (libdevice), and what a package of kernels would ask a GPU for."""


def _imported(name: str) -> ModuleType:
    while True:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            package = str(error.name).partition(".")[0]
            if package in _Missing.packages:
                raise
            _Missing.packages.add(package)


def _scalars(interpreter: Any, tl: Any) -> None:
    """Gives the interpreter's plain float parameters and formats what they have on a device."""
    plain = interpreter._implicit_cvt
    tl.dtype.value = property(lambda self: self)  # as of the constant that it is on a device

    def converted(given: Any) -> Any:
        if isinstance(given, float):
            handle = interpreter.TensorHandle(np.array([given], np.float32), tl.float32)
            return tl.tensor(handle, tl.float32)
        return plain(given)

    interpreter._implicit_cvt = converted


class _Driver:
    """A device that nothing runs on, for what asks for one before it launches."""

    def get_current_target(self) -> Any:
        return SimpleNamespace(backend="cuda", arch=90, warp_size=32)

    def get_active_torch_device(self) -> Any:
        return "cpu"

    def get_current_device(self) -> int:
        return 0

    def get_benchmarker(self) -> Any:
        return None

    def __getattr__(self, name: str) -> Any:
        if name == "utils":
            return SimpleNamespace(get_device_properties=lambda *_: {"multiprocessor_count": 132})
        raise AttributeError(name)


def _first(tuner: Any, *given: Any, **named: Any) -> Any:
    """A launch by the first of an autotuner's configurations, as the tracer takes it."""
    chosen = {} if not tuner.configs else tuner.configs[0].kwargs
    return tuner.fn.run(*given, **{**chosen, **named})


def interpreted(names: str, folders: list[Path], out: Path) -> None:
    """Runs cases under torch and Triton's interpreter; keeps what they return and change, or why not."""
    import torch
    import triton
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner

    sys.meta_path.append(_Missing())
    _scalars(interpreter, tl)

    (out / "triton_shims.py").write_text(SHIMS)
    sys.path.insert(0, str(out))
    shims = importlib.import_module("triton_shims")
    device = SimpleNamespace(multi_processor_count=132, warp_size=32, name="", major=9, minor=0)
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: device
    torch.cuda.current_device = lambda: 0
    torch.cuda.device = lambda *_: contextlib.nullcontext()
    triton.runtime.driver.set_active(_Driver())
    Autotuner.run = _first
    for case in CASES:
        found = located(case, folders)
        kept = any((out / f"{case.name}{kind}").exists() for kind in (".npz", ".txt"))
        if found is None or names not in case.name or kept:
            continue
        file, root = found
        (out / f"{case.name}.txt").write_text(ENDED)
        sys.path[:0] = [str(root), str(file.parent)]
        try:
            with shells(root):
                if case.file.startswith("unsloth"):
                    sys.modules["unsloth.kernels.utils"] = shims
                module = _imported(case.file.removesuffix(".py").replace("/", "."))
                for own in ("tanh", "rsqrt"):
                    if hasattr(module, own):
                        setattr(module, own, getattr(shims, own))
                _kept(torch, case, module, out)
                (out / f"{case.name}.txt").unlink()
        except Exception as error:
            said = f"{type(error).__name__}: {error}".strip().splitlines()
            (out / f"{case.name}.txt").write_text(f"{said[0]} {said[-1]}")
        del sys.path[:2]


def _kept(torch: Any, case: Case, module: Any, out: Path) -> None:
    tensors = [torch.from_numpy(one.copy()) for one in case.inputs]
    returned = case.call(module, *tensors)
    outputs: list[Any] = []

    def visit(part: Any) -> None:
        if isinstance(part, torch.Tensor):
            outputs.append(part)
        elif isinstance(part, (tuple, list)):
            for inner in part:
                visit(inner)

    visit(returned)
    held = {one.untyped_storage().data_ptr() for one in outputs}
    for before, tensor in zip(case.inputs, tensors, strict=True):
        changed = not np.array_equal(before, tensor.numpy(), equal_nan=True)
        if changed and tensor.untyped_storage().data_ptr() not in held:
            outputs.append(tensor)
    np.savez(out / f"{case.name}.npz", *[one.detach().float().numpy() for one in outputs])


def compared(case: Case, algorithm: Any, kept: Path) -> str:
    """How far what is lifted is from what the interpreter computes."""
    from tests.algorithm.evaluation import evaluate

    file = kept / f"{case.name}.npz"
    if not file.is_file():
        why = file.with_suffix(".txt")
        return "not interpreted: " + (why.read_text()[:150] if why.is_file() else "no output")
    wanted = [np.load(file)[key] for key in np.load(file).files]
    arrays = dict(zip((a.name for a in algorithm.inputs), case.inputs, strict=True))
    found = evaluate(algorithm, arrays)
    if [one.size for one in found] != [one.size for one in wanted]:
        return f"other outputs: {[o.shape for o in found]}, {[o.shape for o in wanted]}"
    worst = 0.0
    for one, other in zip(found, wanted, strict=True):
        scale = np.nanmax(np.abs(np.where(np.isfinite(other), other, 0)), initial=1e-6)
        one = one.reshape(other.shape)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        with np.errstate(invalid="ignore"):
            away = np.where(same, 0, np.abs(one - other))
        worst = max(worst, float(np.max(away, initial=0) / scale))
    return f"{'right' if worst < 2e-3 else 'WRONG'} {worst:.0e}"


def report(folders: list[Path], only: str = "", interpreter: str = "", seconds: int = 60) -> None:
    """Lifts the launches whose files lie in folders, and compares them where there is an interpreter: a row
    for each, and totals; nothing where there are none."""
    from accelopt.algorithm.traced_array import NotTraced

    tried = lifts = right = 0
    kept = Path(tempfile.mkdtemp())
    if interpreter:
        command = [interpreter, __file__, *map(str, folders), "--interpret", "--out", str(kept)]
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        while subprocess.run([*command, "--only", only], env=environment).returncode < 0:
            pass  # a kernel that reads or writes outside of a tensor ends it: on with the next
        for file in kept.glob("*.txt"):
            if file.read_text() == ENDED:  # by itself it may come through
                file.unlink()
                subprocess.run([*command, "--only", file.stem], env=environment)
    for case in CASES:
        found = located(case, folders)
        if found is None or only not in case.name:
            continue
        tried += 1
        begun, said = time.monotonic(), "-"
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
        signal.alarm(seconds)
        try:
            algorithm = lifted(case, *found)
            signal.alarm(0)
            lifts += 1
            if interpreter:
                said = compared(case, algorithm, kept)
                right += said.startswith("right")
            row = f"yes {len(algorithm.definitions):3} definitions  {said}"
        except NotTraced as refusal:
            row = f"no  {refusal}"
        except TimeoutError:
            row = f"no  took longer than {seconds} s"
        signal.alarm(0)
        print(f"{case.name:32}{time.monotonic() - begun:6.1f} s  {row}", flush=True)
    if tried:
        print(f"{lifts} of {tried} launches of Triton kernels lift; {right} equal the interpreter")


def main() -> None:
    """Finds, lifts, compares, counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--only", default="")
    parser.add_argument("--interpreter", default="")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--interpret", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folders = [folder.resolve() for folder in options.folders]
    if options.interpret:
        interpreted(options.only, folders, options.out)
        return
    report(folders, options.only, options.interpreter, options.seconds)


if __name__ == "__main__":
    main()
