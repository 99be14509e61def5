"""Runs CUDA kernels on the CPU, and says which of several kernels give other results than the first."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from accelopt.kernels.cuda.launching import compilable, launch_of, signature_of

HEADER = Path(__file__).parent / "cuda_on_cpu.h"
COMPILER = shutil.which("g++")
_TOLERANCE = {"float": (2e-4, 2e-4), "double": (1e-9, 1e-9), "half": (1e-2, 1e-2)}


class Data(NamedTuple):
    """What a pointer is given: as many elements as `length` says in the numbers of the case, drawn
    between `low` and `high`."""

    length: str
    low: float = -2.0
    high: float = 2.0


class Sample(NamedTuple):
    """A kernel with its launch, its pointers' data by name, and the numbers of each case."""

    source: str
    data: Mapping[str, Data]
    cases: Sequence[Mapping[str, float]]
    relative: float | None = None
    refuses: bool = False
    """Whether nothing but block sizes and the like is to be proposed for it."""

    def values(self) -> dict[str, int]:
        """Whole numbers of the first case, and the lengths of its arrays, as a contract says them."""
        numbers = {name: int(value) for name, value in self.cases[0].items() if value == int(value)}
        lengths = {name: eval(data.length, {}, dict(numbers)) for name, data in self.data.items()}
        return numbers | lengths


def differing(sample: Sample, sources: Sequence[str], folder: Path) -> list[str]:
    """What is wrong with each source that does not give what the sample's own gives, over all its
    cases, with arrays that are aligned and that are not, threads going forwards and backwards."""
    text = _program(sample, [sample.source, *sources])
    cpp, program = folder / "kernels.cpp", folder / "kernels"
    cpp.write_text(text)
    flags = "-std=c++20 -O1 -w -fno-strict-aliasing -fsanitize=alignment,bounds -fno-sanitize-recover=all"
    made = subprocess.run(
        [str(COMPILER), *flags.split(), f"-include{HEADER}", str(cpp), "-o", str(program)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[:3000]
    done = subprocess.run(
        [str(program)], capture_output=True, text=True, check=False, timeout=300
    )  # fmt: skip
    said = [line for line in done.stdout.splitlines() if not line.startswith("DONE")]
    if done.returncode:
        said.append(f"status {done.returncode} after {done.stdout[-300:]} {done.stderr[:1500]}")
    return said


def _program(sample: Sample, sources: Sequence[str]) -> str:
    kernels = []
    for number, source in enumerate(sources):
        text = re.sub(r"^[ \t]*#[ \t]*include[^\n]*", "", compilable(source), flags=re.M)
        text = re.sub(r'extern\s*"C"|\bstatic\s+(?=__shared__)', "", text)
        text = re.sub(
            r"extern\s+__shared__\s+(?:__align__\(\d+\)\s*)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;",
            r"\1* \2 = reinterpret_cast<\1*>(dynamic_shared);", text,
        )  # fmt: skip
        undone = "".join(f"#undef {name}\n" for name in re.findall(r"#\s*define\s+(\w+)", text))
        kernels.append(f"namespace kernel{number} {{\n{text}\n}}\n{undone}")
    return "\n".join([*kernels, "int main() {", *_cases(sample, sources), "}"])


def _cases(sample: Sample, sources: Sequence[str]) -> list[str]:
    signature = signature_of(sample.source)
    pointers = [p for p in signature.parameters if p.pointer]
    numbers = list(sample.cases[0])
    rows = ", ".join(f"{{{', '.join(map(str, case.values()))}}}" for case in sample.cases)
    lines = [f"const double cases[{len(sample.cases)}][{len(numbers) + 1}] = {{{rows}}};"]
    lines.append("for (auto& numbers : cases) for (int shift = 0; shift < 2; ++shift) {")
    for place, name in enumerate(numbers):
        kind = next((p.type for p in signature.parameters if p.name == name), "int")
        lines.append(f"const {kind} {name} = numbers[{place}];")
    for seed, one in enumerate(pointers):
        data = sample.data[one.name]
        whole = str(any(word in one.type for word in ("int", "unsigned", "char"))).lower()
        for copy in ("first", "then", "start"):
            lines.append(f"Array<{one.type}> {copy}_{one.name}({data.length}, shift);")
        lines.append(f"start_{one.name}.draw({seed + 1}, {data.low}, {data.high}, {whole});")
    for number, source in enumerate(sources):
        lines += _run(sample, source, number)
    return [*lines, "}"]


def _run(sample: Sample, source: str, number: int) -> list[str]:
    signature, launch = signature_of(source), launch_of(source)
    copy = "then" if number else "first"
    pointers = [p for p in signature.parameters if p.pointer]
    words = [f"{copy}_{p.name}.data" if p.pointer else p.name for p in signature.parameters]
    grid, block = ("{" + ", ".join(map(str, three)) + "}" for three in (launch.grid, launch.block))
    lines = [f"for (int turn = 0; turn < {2 if number else 1}; ++turn) {{ cpu::backwards = turn;"]
    lines += [f"{copy}_{p.name}.copy(start_{p.name});" for p in pointers]
    call = f"kernel{number}::{signature.name}({', '.join(words)})"
    lines.append(f"cpu::launch({grid}, {block}, [&] {{ {call}; }});")
    for p in pointers if number else ():
        kind = p.type.replace("__half", "half").replace("__nv_bfloat16", "half")
        relative, absolute = _TOLERANCE.get(kind, (0.0, 0.0))
        if sample.relative is not None:
            relative = absolute = sample.relative
        lines.append(f'then_{p.name}.equals(first_{p.name}, {relative}, {absolute}, "{p.name}", {number}, numbers[0], shift, turn);')  # fmt: skip
    return [*lines, "}"]
