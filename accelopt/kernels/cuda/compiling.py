"""CUDA source to PTX and machine code: by nvcc where it is installed, else by NVRTC of its wheel.

Neither needs a GPU. Both give PTX, machine code, and the assembler's notes on what each kernel takes.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import importlib.util
import math
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from accelopt.hardware.gpus import GPU
from accelopt.kernels.cuda.launch_pragma import compilable, launch_of
from accelopt.kernels.gpu.bench.files.tracefiles import Solution
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.time_limits import NVCC_SECONDS

NO_COMPILER = (
    "no CUDA compiler: install the CUDA toolkit (nvcc), or `pip install nvidia-cuda-nvrtc "
    "nvidia-cuda-runtime`"
)
_ENTRY = re.compile(r"\.visible\s+\.entry\s+(\w+)")
_USED = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<stack>\d+) bytes stack frame"
    r".*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


class CompilationError(Exception):
    """What a compiler says of a source."""


class Built(NamedTuple):
    """A compiled source. `notes` are the assembler's, `compiler` says who did it."""

    ptx: str
    cubin: bytes
    notes: str
    compiler: str

    def entry(self, name: str) -> str:
        """The kernel `name` as the machine code calls it. Raises CompilationError where it is not there."""
        name = name.partition("<")[0]
        for symbol in _ENTRY.findall(self.ptx):
            if symbol == name or re.match(rf"_Z(?:N\w*?)?{len(name)}{name}(?!\d)", symbol):
                return str(symbol)
        raise CompilationError(f"there is no kernel {name} in what was compiled")


class Used(NamedTuple):
    """What one kernel takes: 32-bit registers a thread, bytes of static shared memory, bytes of stack."""

    name: str
    registers: int
    shared_bytes: int
    stack_bytes: int


def used(notes: str) -> tuple[Used, ...]:
    """What each kernel takes, by the assembler's notes."""
    found = []
    for match in _USED.finditer(notes):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        found.append(
            Used(
                match["name"],
                int(match["registers"]),
                int(shared[1]) if shared else 0,
                int(match["stack"]),
            )
        )
    return tuple(found)


def build(source: str, capability: int, folder: Path, name: str = "") -> Built:
    """Compile a source for a GPU of `capability` (90 for an H200), with the instance of a template that
    `name` asks for; files go to `folder`.

    Raises CompilationError with the compiler's words, or where there is no compiler.
    """
    nvcc, library = shutil.which("nvcc"), nvrtc_library()
    text, arch = compilable(source, name), architecture(capability)
    if nvcc is not None:
        return _by_nvcc(nvcc, text, arch, folder)
    if library is not None:
        return _by_nvrtc(library, text, arch)
    raise CompilationError(NO_COMPILER)


def architecture(capability: int) -> str:
    """With the instructions that only this generation has, from Hopper on."""
    return f"{capability}a" if capability >= 90 else str(capability)


def nvrtc_library() -> Path | None:
    """NVRTC's library in the wheels of this environment."""
    return next((path for folder in _wheels() for path in sorted(folder.glob(
        "*/lib/libnvrtc.so.*")) if ".alt." not in path.name), None)  # fmt: skip


def _wheels() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    return [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []


def _by_nvcc(nvcc: str, text: str, arch: str, folder: Path) -> Built:
    """The toolkit's compiler, then the assembler beside it."""
    source, ptx, cubin = (folder / f"kernel.{kind}" for kind in ("cu", "ptx", "cubin"))
    source.write_text(text)
    common = ["-O3", "-std=c++17", "-lineinfo", f"-gencode=arch=compute_{arch},code=sm_{arch}"]
    ptx_only = ["-O3", "-std=c++17", "-lineinfo", f"-arch=compute_{arch}", "-ptx"]
    _run([nvcc, *ptx_only, str(source), "-o", str(ptx)])
    notes = _run([nvcc, *common, "-cubin", "-Xptxas=-v", str(ptx), "-o", str(cubin)])
    return Built(ptx.read_text(), cubin.read_bytes(), notes, _version_of(nvcc))


def _run(command: list[str]) -> str:
    """What a program prints. Raises CompilationError where it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=NVCC_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise CompilationError(
            f"{Path(command[0]).name} takes more than {NVCC_SECONDS:g} s"
        ) from None
    said = f"{done.stdout}{done.stderr}".strip()
    if done.returncode:
        raise CompilationError(said[-4000:] or f"{command[0]} ended with status {done.returncode}")
    return said


@functools.cache
def _version_of(nvcc: str) -> str:
    found = re.search(r"release ([\d.]+)", _run([nvcc, "--version"]))
    return f"nvcc {found[1]}" if found else "nvcc"


def _by_nvrtc(library: Path, text: str, arch: str) -> Built:
    """By the calls of nvrtc.h."""
    for builtins in sorted(library.parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)  # NVRTC looks for it by name alone
    nvrtc = ctypes.CDLL(str(library))
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    headers = [f"--include-path={path}" for folder in _wheels()
               for path in sorted(folder.glob("*/include"))]  # fmt: skip
    options = [f"--gpu-architecture=sm_{arch}", "--std=c++17", "-lineinfo", "--ptxas-options=-v"]
    words = [word.encode() for word in (*options, *headers)]

    def made(what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(max(1, size.value))
        getattr(nvrtc, f"nvrtcGet{what}")(program, text)
        return text.raw[: size.value]

    failed = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    said = made("ProgramLog").rstrip(b"\0").decode(errors="replace")
    ptx, cubin = ("", b"") if failed else (made("PTX").rstrip(b"\0").decode(), made("CUBIN"))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise CompilationError(said[-4000:])
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return Built(ptx, cubin, said, f"NVRTC {major.value}.{minor.value}")


class CudaCompiler:
    """Compiles kernels that are given alone; what comes with host code is built where it runs."""

    def __init__(self, target: GPU) -> None:
        self.target = target

    def compile(self, asked: say.Compile) -> say.Compiled:
        """The solution's kernel, compiled for the target."""
        solution = Solution.model_validate(asked.solution)
        if solution.spec.binding != "driver":
            raise NotImplementedError(f"{solution.name} is built where it runs")
        source = solution.main_source
        launch, kernel_name = launch_of(source), solution.spec.entry_point.partition("::")[2]
        with tempfile.TemporaryDirectory(prefix="accelopt-source-") as folder:
            built = build(source, self.target.capability, Path(folder), kernel_name)
        return say.Compiled(
            resources=tuple(
                say.Resources(
                    kernel=kernel.name,
                    warps=-(-launch.threads // 32),
                    stages=0,
                    shared_bytes=kernel.shared_bytes + launch.shared,
                    registers=kernel.registers,
                    spilled_bytes=kernel.stack_bytes,
                )
                for kernel in used(built.notes)
            ),
            code=(
                say.Code(
                    kernel=kernel_name,
                    ptx=built.ptx,
                    cubin=base64.b64encode(built.cubin).decode(),
                    blocks=math.prod(launch.grid),
                ),
            ),
        )
