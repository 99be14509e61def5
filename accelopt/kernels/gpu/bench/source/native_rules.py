"""What a solution's C++ and CUDA sources must not name.

Compiled code shares its process with the clock, so it may name headers of an allow-list and nothing
that reaches the host, the timing or a library's kernels. It is a sieve over tokens: a macro that puts
names together is refused, for it blinds it. What it lets through still meets the referee's own
process, hidden rounds and the parent's clock.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping

from accelopt.kernels.gpu.bench.source.assembly import assembly_faults
from accelopt.kernels.gpu.bench.source.c_library import system_faults
from accelopt.kernels.gpu.bench.source.linkage import HIDDEN, HOST, linkage_faults
from accelopt.kernels.gpu.bench.source.source_text import Violation
from accelopt.kernels.prompt_injection_check import words_to_a_model

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
    HOST: re.compile(
        r"dl(m?open|v?sym|close|info)|RTLD_\w+|ptrace|m(map|protect|remap)|syscall|v?fork|exec[vl]p?e?"
        r"|popen|system|f?re?open|fopen\w*|creat|openat|[io]?fstream|filesystem|socket|connect|getenv"
        r"|secure_getenv|[sp]utenv|setenv|environ|pthread_\w+|thread|jthread|async|signal|sigaction"
        r"|_*(constructor|destructor|ifunc|init_priority)_*|__libc_\w+|_r_debug|link_map|process_vm_\w+|remove"
        r"|rename|unlink|std(in|out|err)|FILE|_*exit|_Exit|quick_exit|at_?(quick_)?exit|abort|terminate"
        r"|__builtin_(frame|return|extract|frob|setjmp|longjmp|apply|eh)\w*|(set|long)jmp|__cxa_\w+"
    ),
    "reaches the clock or the profiler": re.compile(
        r"clock_(get|set)\w+|gettimeofday|chrono|c(u|uda)Event\w*|cudaProfiler\w*|cuProfiler\w*|cupti\w*"
        r"|nvml\w*|c(u|uda)Graph\w*|CUDAEvent|usleep|nanosleep|sleep|timespec_get|__\w*(clock|sreg_pm)\w*"
        r"|(?i:(\w*_)?(clock|globaltimer)(64)?(_\w*)?)"  # a part of a name
        r"|getrusage|\w*rdtscp?|__builtin_\w*(rdtsc|cyclecounter)\w*"
    ),
    "reaches the driver behind the runtime": re.compile(
        r"cu(Module|Library|Link|Ctx|Device|GetProcAddress|Mem|Ipc|Launch)\w*|cudaIpc\w*|cudaHost\w*"
        r"|cudaGet(DriverEntryPoint|ExportTable)\w*|cudaLaunchHostFunc|cudaStreamAddCallback|cudaDeviceReset"
        r"|cudaPointerGetAttributes|cudaMemGetAddressRange|cudaLibrary\w*|cudaKernel_t|cudaGetKernel"
    ),
    "reaches the interpreter": re.compile(
        r"Py[A-Z_]\w*|_Py\w+|py|pybind11|TORCH_LIBRARY\w*|Dispatcher|(Get|Set|Remove|List)Global\w*"
        r"|TVMFFIEnv(?!GetStream|TensorAlloc)\w+|TVMFFI(Function|Module|Type|Object)(?!Handle)\w+"
        r"|(LoadFrom|ImportM|GetF)(File|Bytes|odule|unction)\w*|SystemLib\w*"
    ),
    "changes the device for what comes after it": re.compile(
        r"cudaDeviceSet(?!Attribute)\w+|cudaCtxReset\w+|cudaSetDeviceFlags|cudaStreamSetAttribute"
        r"|cudaStreamAttr\w*|cudaLimit\w*|\w*[aA]ccessPolicyWindow\w*|cudaAccessProperty\w*"
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
_BLINDS = re.compile(
    r"\busing\s+namespace\s+(?:at|torch|c10)\b|\bnamespace\s+\w+\s*=\s*(?:::)?(?:at|torch|c10)\b"
)
_STRING = r'"(?:\\.|[^"\\\n])*"'
_LEXED = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    | (?<!\w)(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\((?P<raw>.*?)\)(?P=mark)"
    | (?<!\w)(?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)  # whose quotes part digits
    | (?P<string>"(?:\\.|[^"\\\n])*")
    | (?P<character>'(?:\\.|[^'\\\n])+')""",
    re.S | re.X,
)
_STRINGS = re.compile(rf"{_STRING}(?:\s*{_STRING})*")  # one string, to the compiler
_ASSEMBLY = re.compile(r"\b(?:asm|__asm__|__asm)\b")
_TEMPLATE = re.compile(
    rf"(?:\s*\b(?:volatile|__volatile__|goto|inline)\b)*\s*\((?P<parts>(?:{_STRING}|\s|#?\w)*)[:)]"
)
_PART = re.compile(rf"{_STRING}|#?\w+")
_PRAGMA = re.compile(r"_Pragma\s*\(\s*(?:u8|[uUL])?$")
_DEFINED = re.compile(
    rf"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+({_STRING}(?:[ \t]*{_STRING})*)", re.M
)
_INCLUDE = re.compile(r"\s*#\s*(?:include|include_next|import)\b\s*(.*)")


def native_violations(path: str, files: Mapping[str, str]) -> list[Violation]:
    """Every forbidden thing in one of a solution's C++ or CUDA sources, texts by path."""
    joined = _joined(files[path])
    found = [
        Violation(path, _line_of(joined, said), finding.text, SPEAKS)
        for said in _LEXED.finditer(joined)
        for finding in words_to_a_model("# " + " ".join(said.group().split()))
    ]
    bare = _LEXED.sub(_plain, joined)
    names = {part for one in files for part in (one, one.rpartition("/")[2])}
    for number, line in enumerate(bare.splitlines(), 1):
        found += (Violation(path, number, *said) for said in _of_line(line, names))
    for match in _STRINGS.finditer(bare):
        found += (Violation(path, _line_of(bare, match), *said) for said in _of_string(bare, match))
    sources = [_LEXED.sub(_plain, _joined(one)) for one in files.values()]
    blank = re.sub(_STRING, lambda string: " " * len(string.group()), bare)
    faults = [*linkage_faults(bare, sources), *system_faults(blank, sources)]
    for place, said_there, reason in faults:
        found.append(Violation(path, bare[:place].count("\n") + 1, said_there, reason))
    defined = {name: _value(strings) for name, strings in _DEFINED.findall(bare)}
    for match in _ASSEMBLY.finditer(bare):
        told = _of_assembly(_TEMPLATE.match(bare, match.end()), defined)
        found += (Violation(path, _line_of(bare, match), *said) for said in told)
    return found


def _joined(text: str) -> str:
    """Lines as the preprocessor puts them together before it reads."""
    return re.sub(r"\\[ \t]*\r?\n", "", text)


def _line_of(text: str, match: re.Match[str]) -> int:
    return text[: match.start()].count("\n") + 1


def _plain(lexed: re.Match[str]) -> str:
    """A comment as the space that it is, a raw string as a plain one, numbers and characters without their
    quotes, in as many lines."""
    lines = "\n" * lexed.group().count("\n")
    if lexed["comment"] is not None:
        return lines or " "
    if lexed["raw"] is not None:
        return json.dumps(lexed["raw"], ensure_ascii=False) + lines
    if lexed["number"] is not None:
        return lexed["number"].replace("'", "")
    return lexed.group() if lexed["string"] is not None else "0"


def _value(strings: str) -> str:
    """What a run of string literals is to the compiler."""
    inner = "".join(literal[1:-1] for literal in re.findall(_STRING, strings))
    return re.sub(r"\\(?:x[0-9a-fA-F]+|[0-7]{1,3}|[uU][0-9a-fA-F]+|.)", _unescaped, inner)


def _unescaped(escape: re.Match[str]) -> str:
    sign, digits = escape.group()[1], escape.group()[2:]
    if sign in "xuU":
        return chr(min(int(digits or "0", 16), sys.maxunicode))
    if sign in "01234567":
        return chr(int(sign + digits, 8))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(sign, sign)


def _of_string(text: str, match: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Of a string that is a name, as attributes take it, or a pragma's text."""
    value = _value(match.group())
    if _PRAGMA.search(text[max(0, match.start() - 80) : match.start()]) or value.isidentifier():
        yield from _of_code(value)


def _of_assembly(
    template: re.Match[str] | None, defined: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Of what stands behind the word `asm`: strings, and macros that stand for some; what a macro makes a
    string of is an operand or the end of a name."""
    if template is None:
        yield "asm", HIDDEN
        return
    whole = ""
    for part in _PART.findall(template["parts"]):
        if part.startswith('"'):
            whole += _value(part)
        elif part.startswith("#"):
            whole += "0"
        elif part in defined:
            whole += defined[part]
        else:
            yield part, HIDDEN
    yield from assembly_faults(whole)


def _of_line(line: str, own: set[str]) -> Iterator[tuple[str, str]]:
    if include := _INCLUDE.match(line):
        named = include.group(1).strip()
        inner = named[1:-1] if named[:1] + named[-1:] in ("<>", '""') else ""
        if not _HEADERS.fullmatch(inner) and inner.removeprefix("./") not in own:
            yield f"#include {named}", "is no header of the list"
        return
    code = re.sub(_STRING, '""', line)
    for sign in ("##", "%:", "??", "\\u", "\\U"):
        if sign in code:
            yield sign, HIDDEN
    yield from _of_code(code)


def _of_code(code: str) -> Iterator[tuple[str, str]]:
    for name in re.findall(r"[A-Za-z_]\w*", code):
        for reason, forbidden in _REASONS.items():
            if forbidden.fullmatch(name):
                yield name, reason
    for match in _BLINDS.finditer(code):
        yield match.group(), HIDDEN
    for name in _WRITES_OUT.findall(code):
        yield name, "calls a library's kernel"
    for match in _IN_TORCH.finditer(code):
        if any(part.strip() not in _TORCH for part in match.group(1).split("::")):
            yield match.group().replace(" ", ""), "calls a library's kernel"
