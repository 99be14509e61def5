"""Functions that a model may call about the kernel in view: structure, counters, code of a source line.

They answer from the PTX of a GPU's kernel and from Nsight Compute's counters; of a NeuronCore's kernel a prompt
says all of it. Each answer is JSON of at most `LONGEST` characters, and says what is
missing in a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.agents.calls import Tool
from accelopt.errors import AcceloptError
from accelopt.kernels.gpu.compiler_output import NO_COUNTERS, NO_PTX, CompilerOutput
from accelopt.kernels.gpu.profiling.metrics import Metrics, read_kernels
from accelopt.ptx.region_views import overview, region_detail, stage_detail
from accelopt.ptx.regions import RegionDag, analyse
from accelopt.ptx.statements import by_source, read

LONGEST = 4000  # characters of an answer
MOST_TURNS = 8
Json = dict[str, Any]


class Missing(Exception):
    """What an answer would need; one sentence."""


class RegionDagContext:
    """The structure of a kernel's PTX. Raises Missing on use where there is none."""

    def __init__(self, ptx_text: str, kernel_name: str = "", missing: str = NO_PTX) -> None:
        self.text, self.kernel, self.missing = ptx_text, kernel_name, missing
        self._dag: RegionDag | None = None

    def inspect(self, mode: str = "overview", **given: Any) -> Json:
        """`overview`, `stage_detail` (stage_id) or `region_detail` (region_id, max_insts)."""
        if not self.text:
            raise Missing(self.missing)
        if self._dag is None:
            self._dag = analyse(self.text, self.kernel)
        if mode == "stage_detail":
            return stage_detail(self._dag, _whole(given, "stage_id"))
        if mode == "region_detail":
            most = _whole(given, "max_insts", 16)
            return region_detail(self._dag, _whole(given, "region_id"), most)
        if mode != "overview":
            raise Missing(f"no mode {mode!r}: there are overview, stage_detail, region_detail")
        stages, regions = _whole(given, "max_hot_stages", 4), _whole(given, "max_hot_regions", 8)
        return overview(self._dag, stages, regions)


class NcuMetricsContext:
    """Counters of one kernel: as read, or from a CSV of Nsight Compute's raw page. Raises Missing on use
    where there are none."""

    def __init__(
        self, report: Metrics | Path | None, action_idx: int = 0, missing: str = NO_COUNTERS
    ) -> None:
        self.missing = missing
        self.metrics = report if isinstance(report, Metrics) else None
        if isinstance(report, Path):
            kernels = read_kernels(report.read_text()) if report.is_file() else ()
            self.metrics = kernels[action_idx] if action_idx < len(kernels) else None

    def inspect(self, mode: str = "summary", **given: Any) -> Json:
        """`summary`, `get_values` (names, name_kind) or `search_names` (query)."""
        if self.metrics is None:
            raise Missing(self.missing)
        known = {name: v for part in self.metrics.sections.values() for name, v in part.items()}
        raw = self.metrics.raw
        if mode == "summary":
            return {**self.metrics.summary(), "arithmetic_intensity": self.metrics.intensity}
        kinds = {"canonical": known, "ncu": raw, "auto": {**raw, **known}}
        return _of_names(
            mode, given, kinds.get(str(given.get("name_kind", "auto")), {**raw, **known})
        )


class PtxSourceCorrelator:
    """The PTX that came of lines of the source, by its `.loc` lines. Raises Missing on use without."""

    def __init__(self, ptx_text: str, missing: str = NO_PTX) -> None:
        self.text, self.missing = ptx_text, missing

    def find(self, **given: Any) -> Json:
        """Statements of `source_file` from `start_line` to `end_line`, `max_insts` at most."""
        if not self.text:
            raise Missing(self.missing)
        lines = by_source(read(self.text))
        if not lines:
            raise Missing("the PTX has no .loc lines: it does not say which source it came of")
        start = _whole(given, "start_line")
        last, most = _whole(given, "end_line", start), _whole(given, "max_insts", 64)
        name = str(given.get("source_file") or "")
        found = [
            {"source": f"{place.file}:{place.line}", "ptx_line": one.line, "ptx": one.text}
            for place, statements in lines.items()
            if start <= place.line <= last and place.file.endswith(name)
            for one in statements
        ]
        if not found:
            known = sorted({place.line for place in lines})
            raise Missing(f"no PTX came of these lines; lines {known[0]} to {known[-1]} have some")
        return {"instructions": found[:most], "all": len(found)}


class ModelFunction(NamedTuple):
    """A function as models know it: what it answers, and its arguments."""

    description: str
    arguments: str


FUNCTIONS: Mapping[str, ModelFunction] = {
    "ncu_metrics_inspect": ModelFunction(
        "measured counters of the kernel",
        '{"mode": "summary"}, {"mode": "get_values", "names": [...], "name_kind": "auto"} or '
        '{"mode": "search_names", "query": "..."}',
    ),
    "region_dag_inspect": ModelFunction(
        "structure and work of the compiled kernel",
        '{"mode": "overview"}, {"mode": "stage_detail", "stage_id": 0} or {"mode": '
        '"region_detail", "region_id": 0}',
    ),
    "get_ptx_by_source": ModelFunction(
        "the instructions that came of lines of the source",
        '{"start_line": 1, "end_line": 9, "max_insts": 64}',
    ),
}
"""In the order in which to ask: measurements, then structure, then the lines to edit."""


def tools_for(found: CompilerOutput) -> tuple[Tool, ...]:
    """The functions over what is known of one kernel; each takes its arguments as one JSON object."""
    answers: tuple[Callable[..., Json], ...] = (
        NcuMetricsContext(found.metrics, missing=found.no_metrics).inspect,
        RegionDagContext(found.ptx, missing=found.no_ptx).inspect,
        PtxSourceCorrelator(found.ptx, found.no_ptx).find,
    )

    def tool(name: str, function: Callable[..., Json]) -> Tool:
        async def call(arguments: str) -> str:
            return answer(function, arguments)

        known = FUNCTIONS[name]
        said = f"{known.description}; `arguments` is JSON: {known.arguments}"
        return Tool(name, said, "arguments", call)

    return tuple(map(tool, FUNCTIONS, answers))


def answer(function: Callable[..., Json], arguments: str) -> str:
    """What a function says, as JSON that is short enough; what is missing or wrong, as a sentence in it."""
    try:
        given = json.loads(arguments or "{}")
        if not isinstance(given, dict):
            raise Missing("arguments must be one JSON object")
        found = function(**given)
    except (Missing, AcceloptError) as error:
        found = {"missing": str(error)}
    except (ValueError, TypeError, RecursionError, OSError) as error:
        found = {"missing": f"these arguments cannot be used: {error}"}
    return fitted(found)


def fitted(found: Json, limit: int = LONGEST) -> str:
    """JSON of at most `limit` characters: of what is too long the longest lists and texts are halved."""
    text = json.dumps(found, default=str)
    while len(text) > limit:
        found = json.loads(text)
        parts = [part for part in _parts(found) if len(part[0][part[1]]) > 1]
        if not parts:
            return json.dumps({"missing": f"the answer is longer than {limit} characters"})
        holder, key = max(parts, key=lambda part: len(json.dumps(part[0][part[1]])))
        holder[key] = holder[key][: len(holder[key]) // 2]
        found["shortened"] = True
        text = json.dumps(found)
    return text


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Every list and text in `value`, as what holds it and under which key."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, Any]] = []
    for key, part in pairs:
        if isinstance(part, (list, str)):
            found.append((value, key))
        if isinstance(part, (list, dict)):
            found += _parts(part)
    return found


def _of_names(mode: str, given: Mapping[str, Any], fields: Mapping[str, float]) -> Json:
    if mode == "search_names":
        query = str(given.get("query", "")).lower()
        return {"names": [name for name in fields if query in name.lower()][:32]}
    if mode != "get_values":
        raise Missing(f"no mode {mode!r}: there are summary, get_values, search_names")
    names = given.get("names")
    if not isinstance(names, list) or not names:
        raise Missing("get_values needs names, a list")
    unknown = {n: get_close_matches(str(n), fields, 3) for n in map(str, names) if n not in fields}
    values = {str(name): fields[str(name)] for name in names if str(name) in fields}
    return {"values": values, **({"not_read": unknown} if unknown else {})}


def _whole(given: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Missing(f"{name} must be a whole number")
    return value
