"""What a solution's C++ and CUDA sources must not name.

Compiled code shares its process with the clock, so it may name headers of an allow-list and nothing
that reaches the host, the timing or a library's kernels. It is a sieve over tokens: a macro that puts
names together is refused, for it blinds it. What it lets through still meets the referee's own
process, hidden rounds and the parent's clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from accelopt.kernels.gpu.bench.source.source_text import Violation
from accelopt.kernels.wording import words_to_a_model

SPEAKS = "speaks to a model instead of a reader"
SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".hxx", ".inl")

_HEADERS = re.compile(
    r"cuda_(runtime|runtime_api|bf16|fp16|fp8|fp4|pipeline)\.hp?p?|cuda/[\w/]+|mma\.h|float\.h|math\.h"
    r"|cooperative_groups(\.h|/[\w/.]+)|(cub|cute|cutlass|tvm/ffi)/[\w/.]+|device_launch_parameters\.h"
    r"|torch/(extension|types|all)\.h|ATen/(ATen|cuda/CUDAContext)\.h|c10/cuda/[\w.]+|std(int|def|lib)?\.h"
    r"|algorithm|array|c(assert|float|math|stddef|stdint|stdio|limits)|functional|initializer_list|limits"
    r"|numeric|optional|stdexcept|string|string_view|tuple|type_traits|utility|vector|assert\.h|stdint\.h"
)
_REASONS = {
    "reaches the host system": re.compile(
        r"dl(m?open|v?sym|close|info)|RTLD_\w+|ptrace|m(map|protect|remap)|syscall|v?fork|exec[vl]p?e?"
        r"|popen|system|f?re?open|fopen\w*|creat|openat|[io]?fstream|filesystem|socket|connect|getenv"
        r"|secure_getenv|[sp]utenv|setenv|environ|pthread_\w+|thread|jthread|async|signal|sigaction"
        r"|constructor|destructor|ifunc|init_priority|__libc_\w+|_r_debug|link_map|process_vm_\w+|remove"
        r"|rename|unlink|std(in|out|err)|FILE"
    ),
    "reaches the clock or the profiler": re.compile(
        r"clock_(get|set)\w+|gettimeofday|chrono|c(u|uda)Event\w*|cudaProfiler\w*|cuProfiler\w*|cupti\w*"
        r"|nvml\w*|c(u|uda)Graph\w*|CUDAEvent|usleep|nanosleep|sleep"
    ),
    "reaches the driver behind the runtime": re.compile(
        r"cu(Module|Library|Link|Ctx|Device|GetProcAddress|Mem|Ipc|Launch)\w*|cudaIpc\w*|cudaHost\w*"
        r"|cudaGet(DriverEntryPoint|ExportTable)\w*|cudaLaunchHostFunc|cudaStreamAddCallback|cudaDeviceReset"
        r"|cudaPointerGetAttributes|cudaMemGetAddressRange"
    ),
    "reaches the interpreter": re.compile(
        r"Py[A-Z_]\w*|_Py\w+|py|pybind11|TORCH_LIBRARY\w*|Dispatcher"
    ),
    "calls a library's kernel": re.compile(r"(cublas|cudnn|cusparse|cufft|cusolver|nvrtc)\w*"),
}
_TORCH = frozenset(
    "Tensor empty empty_like zeros zeros_like ones full TensorOptions ScalarType Dtype Device IntArrayRef "
    "ArrayRef Half BFloat16 Float8_e4m3fn optional cuda device_of getCurrentCUDAStream CUDAGuard "
    "OptionalCUDAGuard CUDAStream kFloat kFloat32 kHalf kFloat16 kBFloat16 kInt kInt32 kLong kInt64 kCUDA "
    "kFloat8_e4m3fn kByte kUInt8 kInt8 kBool device dtype".split()
)
_WRITES_OUT = re.compile(r"\w+_outf?(?=\s*\()")  # an operator of ATen, found by its argument
_IN_TORCH = re.compile(r"\b(?:at|torch|c10)\s*::\s*((?:\w+\s*::\s*)*\w+)")
_SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
_INCLUDE = re.compile(r"\s*#\s*(?:include|include_next|import)\b\s*(.*)")


def native_violations(path: str, text: str, own: frozenset[str]) -> list[Violation]:
    """Every forbidden thing in one C++ or CUDA source; `own` are the paths of the solution's files."""
    joined = re.sub(r"\\[ \t]*\r?\n", "", text)  # as the preprocessor does before it reads
    found = [
        Violation(path, joined[: said.start()].count("\n") + 1, finding.text, SPEAKS)
        for said in _SKIPPED.finditer(joined)
        for finding in words_to_a_model("# " + " ".join(said.group().split()))
    ]
    bare = _SKIPPED.sub(lambda match: _blank(match.group()), joined)
    names = {part for one in own for part in (one, one.rpartition("/")[2])}
    for number, line in enumerate(bare.splitlines(), 1):
        found += (Violation(path, number, *said) for said in _of_line(line, names))
    return found


def _blank(skipped: str) -> str:
    """A comment as the space that it is; strings stay where they name a file to include."""
    lines = "\n" * skipped.count("\n")
    return skipped if skipped.startswith('"') else lines or " "


def _of_line(line: str, own: set[str]) -> Iterator[tuple[str, str]]:
    if include := _INCLUDE.match(line):
        named = include.group(1).strip()
        inner = named[1:-1] if named[:1] + named[-1:] in ("<>", '""') else ""
        if not _HEADERS.fullmatch(inner) and inner.removeprefix("./") not in own:
            yield f"#include {named}", "is no header of the list"
        return
    code = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
    for sign in ("##", "%:", "??", "\\u", "\\U"):
        if sign in code:
            yield sign, "puts names together that cannot be read"
    for name in re.findall(r"[A-Za-z_]\w*", code):
        for reason, forbidden in _REASONS.items():
            if forbidden.fullmatch(name):
                yield name, reason
    for name in _WRITES_OUT.findall(code):
        yield name, "calls a library's kernel"
    for match in _IN_TORCH.finditer(code):
        if any(part.strip() not in _TORCH for part in match.group(1).split("::")):
            yield match.group().replace(" ", ""), "calls a library's kernel"
