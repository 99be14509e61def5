"""The same in C++ and CUDA: sources in `native/`, each with the three comment lines of `museum`."""

from pathlib import Path
from typing import NamedTuple

from accelopt.kernels.gpu.bench.files.tracefiles import BuildSpec, Solution, SourceFile

FOLDER = Path(__file__).parent / "native"
HEADERS_OF_BINDING = {"torch": ("rms_row.cuh",), "tvm-ffi": ("rms_row.cuh", "rms.cuh")}


class Native(NamedTuple):
    """One solution in CUDA and the verdicts that are right for it."""

    name: str
    deceit: str
    definition: str
    verdicts: tuple[str, ...]
    source: str

    @property
    def solution(self) -> Solution:
        """With the binding that its source includes."""
        binding = "torch" if "torch/extension.h" in self.source else "tvm-ffi"
        sources = [SourceFile(path="main.cu", content=self.source)]
        for header in HEADERS_OF_BINDING[binding]:
            sources.append(SourceFile(path=header, content=(FOLDER / header).read_text()))
        return Solution(
            name=f"native_{self.name}",
            definition=self.definition,
            author="museum",
            spec=BuildSpec(
                language="cuda",
                entry_point="main.cu::run",
                target_hardware=["cuda"],
                destination_passing_style=True,
                binding=binding,
            ),
            sources=sources,
        )


def natives(kind: str) -> list[Native]:
    """Those of one folder, `honest` or `dishonest`, by name."""
    return [_read(path) for path in sorted((FOLDER / kind).glob("*.cu"))]


def _read(path: Path) -> Native:
    text = path.read_text()
    head = dict(line.removeprefix("// ").split(": ", 1) for line in text.splitlines()[:3])
    verdicts = tuple(word.strip() for word in head["verdict"].split(" or "))
    said = head.get("tries", head.get("does", ""))
    return Native(path.stem, said, head["claims"], verdicts, text)
