"""One table of hardware: every number once, each with unit, source and status."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import accelopt
from accelopt.hardware import TARGETS, Hardware
from accelopt.hardware.gpus import GPUS
from accelopt.hardware.neuroncore import Sourced

ROOT = Path(accelopt.__file__).parent
TABLES = {*(ROOT / "hardware").glob("*.py")}
UNREMARKABLE = (
    {float(n) for n in range(33)}
    | {2.0**n for n in range(64)}
    | {0.9, 1.02, 1.5, 60.0, 255.0, 600.0}
)
SMALL = 200.0
"""Below it, and without a fraction of more than two digits, a number means many things."""
ELSEWHERE = {
    "agents": "sizes of texts",
    "kernels/triton": "sizes of tiles",
}


def remarkable() -> dict[float, str]:
    """The values that nothing but the hardware has, and what they are."""
    found: dict[float, str] = {}
    further = ("sbuf_usable_bytes", "peak_bf16_flops_per_ns", "dma_peak_bytes_per_ns")
    for target, core in (*TARGETS.items(), *GPUS.items()):
        names = [*core.constants(), *(further if isinstance(core, Hardware) else ())]
        values = {name: getattr(core, name) for name in names}
        found |= {
            float(value): f"{name} of {target}"
            for name, value in values.items()
            if not isinstance(value, (bool, str)) and _tells(float(value))
        }
    return found


def _tells(value: float) -> bool:
    """True for a number that is unlikely to stand anywhere by chance."""
    common = value < SMALL and (value < 1.0 or value == int(value))
    return not common and value not in UNREMARKABLE


def literals(tree: ast.AST) -> Iterator[tuple[int, float]]:
    """Numbers of a module, products and powers of them worked out."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.BinOp)):
            try:
                value = (
                    node.value
                    if isinstance(node, ast.Constant)
                    else eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
                )
            except Exception:
                continue
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                yield node.lineno, float(value)


@pytest.mark.parametrize("machine", [*TARGETS.values(), *GPUS.values()], ids=lambda one: one.name)
def test_every_constant_has_unit_source_and_status(machine: Sourced):
    kinds = get_type_hints(type(machine))
    for name in machine.constants():
        source, kind = machine.source(name), kinds[name]
        assert isinstance(getattr(machine, name), (int, float) if kind is float else kind)
        assert source.unit and source.note
        assert source.status in ("documented", "measured", "fitted", "assumed")


def test_no_number_of_the_table_stands_elsewhere():
    """Eight tables contradicted each other (issue 13, house point 3)."""
    known = remarkable()
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if path in TABLES or any(place.startswith(prefix) for prefix in ELSEWHERE):
            continue
        for line, value in literals(ast.parse(path.read_text())):
            if value in known:
                found.append(f"{place}:{line}: {value:g} is {known[value]}")
    assert not found, "\n".join(found)


def test_a_literal_of_the_table_would_be_found():
    """The same search finds 176 KiB however it is written."""
    for text in ("x = 180_224", "x = 176 * 1024", "x = (192 - 16) * 1024"):
        assert any(value in remarkable() for _, value in literals(ast.parse(text)))
