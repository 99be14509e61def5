"""A profile of a real core, as `neuron-explorer` or `neuron-profile` leaves it: a folder of Parquet tables, a
full profile as JSON, or a summary alone.

Source of the fields: "Profile Parquet Schema Reference" of SDK 2.33 (schema 12; 7 of SDK 2.31 has the
same of what is read here), and full profiles as JSON of profiler 2.28, which call them by other names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from accelopt.errors import ConfigError, require
from accelopt.kernels.nki.devices.neuron_profile import ProfilerError, numbers_of, parse_summary

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
STATIC, SOFTWARE, HARDWARE, INSTRUCTIONS = "static", "software", "hardware", "instructions"
_RINGS = {"software_dynamic": SOFTWARE, "hardware_dynamic": HARDWARE, "instruction": INSTRUCTIONS}
"""Who made a packet's descriptors by the type of its queue; of all others the compiler."""
Made = TypeVar("Made")
_LOCATION = re.compile(r"([^\s\[\]'\",]+):(\d+)")


class MeasuredInstruction(NamedTuple):
    """One instruction of an engine, in ns after the start. `line` is that of the kernel's file, 0 where the
    profile does not say; `core` that of a logical core."""

    engine: str
    opcode: str
    start_ns: float
    end_ns: float
    line: int = 0
    core: int = 0


class MeasuredPacket(NamedTuple):
    """One DMA packet."""

    ring: str
    queue: str
    start_ns: float
    end_ns: float
    bytes: int
    core: int = 0


class MeasuredProfile(NamedTuple):
    """What a profile says. `summary` has the profiler's field names, times in seconds; a summary alone has
    neither instructions nor packets."""

    form: str
    latency_ms: float
    summary: Mapping[str, float]
    instructions: Sequence[MeasuredInstruction]
    packets: Sequence[MeasuredPacket]
    instance: str

    @property
    def target(self) -> str:
        """The generation that it was measured on; empty where the profile does not say."""
        family = self.instance.partition(".")[0].removesuffix("n")
        return {"inf2": "trn1"}.get(family, family if re.fullmatch(r"trn\d", family) else "")

    def busy_ns(self, engine: str) -> float | None:
        """The time in which an engine, or `dma`, works, as the summary has it; None where it does not say."""
        field = f"{engine}_active_time" if engine == "dma" else f"{engine}_engine_active_time"
        if field in self.summary:
            return self.summary[field] * 1e9
        share = self.summary.get(f"{field}_percent")
        return None if share is None else share * self.latency_ms * 1e6


def read_profile(path: Path) -> MeasuredProfile:
    """The profile in a folder of Parquet tables or in a JSON file. Raises ConfigError for what is none,
    MissingExtra where pyarrow is not installed."""
    try:
        if path.is_dir():
            return _of_tables(path)
        if not path.is_file():
            raise ConfigError(f"{path} is neither a file nor a folder")
        return _of_json(path)
    except RecursionError:
        raise ConfigError(
            f"{path} cannot be read as a profile: its JSON is nested too deep"
        ) from None
    except (ProfilerError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a profile: {error}") from error


def _of_json(path: Path) -> MeasuredProfile:
    text = path.read_text(encoding="utf-8", errors="replace")
    document = json.loads(text[text.index("{") :] if "{" in text else text)
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    if not isinstance(document.get("instruction"), list):
        summary = document if "total_time" in document else None
        numbers = parse_summary(text) if summary is None else numbers_of(summary)
        return _made(
            "summary", numbers, [], [], _instance(summary or next(iter(document.values())))
        )
    instructions = _each("instruction", document["instruction"], lambda row: MeasuredInstruction(
        _engine(row["subgroup"]), _word(row["opcode"]), *_span(row["timestamp"], row["duration"]),
        _line(row.get("nki_source_location")), int(row.get("pcore_idx") or 0),
    ))  # fmt: skip
    packets = _each("dma", document.get("dma", []), lambda row: MeasuredPacket(
        _RINGS.get(str(row["queue_type"]), STATIC), str(row["dma_queue"]),
        *_span(row["timestamp"], row["duration"]), _size(row["transfer_size"]),
    ))  # fmt: skip
    summaries = document.get("summary") or [{}]
    summary = summaries[0] if isinstance(summaries, list) else summaries
    numbers = _each("summary", [summary], numbers_of)[0]
    return _made("full profile, JSON", numbers, instructions, packets, _instance(summary))


def _of_tables(folder: Path) -> MeasuredProfile:
    """Those in the folder, or in the one below it that the viewer made."""
    places = sorted({path.parent for path in folder.rglob("Summary*.parquet")})
    if len(places) > 1 and folder not in places:
        raise ValueError(f"it has several profiles: {', '.join(str(p) for p in places[:3])}")
    folder = folder if folder in places else (*places, folder)[0]
    summary = next(_rows(folder, "Summary", required=("total_time",)), {})
    metadata: dict[str, Any] = next(_rows(folder, "Metadata", absent_is_well=True), {})
    rows = _rows(folder, "Instruction", required=("engine", "opcode", "start_ts", "end_ts"),
                 also=("nki_source_location", "pcore_idx"))  # fmt: skip
    instructions = _each("Instruction.parquet", list(rows), lambda row: MeasuredInstruction(
        _engine(row["engine"]), _word(row["opcode"]), *_until(row["start_ts"], row["end_ts"]),
        _line(row.get("nki_source_location")), int(row.get("pcore_idx") or 0),
    ))  # fmt: skip
    if not instructions:
        raise ValueError(
            "Instruction.parquet has no row: nothing ran on a core while it was captured"
        )
    rows = _rows(folder, "DmaPacket", required=("queue_type", "start_ts", "end_ts", "transfer_bytes"),
                 also=("queue_name", "queue_idx", "pcore_idx"), absent_is_well=True)  # fmt: skip
    packets = _each("DmaPacket.parquet", list(rows), lambda row: MeasuredPacket(
        _RINGS.get(str(row["queue_type"]), STATIC), str(row.get("queue_name") or row.get("queue_idx")),
        *_until(row["start_ts"], row["end_ts"]), _size(row["transfer_bytes"]), int(row.get("pcore_idx") or 0),
    ))  # fmt: skip
    version = metadata.get("profile_schema_version")
    form = "Parquet tables" + (f" of schema {version}" if version else "")
    if not math.isfinite((numbers := numbers_of(summary)).get("total_time", math.nan)):
        raise ValueError(f"Summary.parquet has no number as total_time: {summary}")
    return _made(form, numbers, instructions, packets, _instance(metadata))


def _each(where: str, rows: Iterable[Any], made: Callable[[Any], Made]) -> list[Made]:
    """What is made of every row; a row of which nothing can be made is named."""
    found: list[Made] = []
    for row in rows:
        try:
            found.append(made(row))
        except KeyError as error:
            raise ValueError(f"row {len(found)} of {where} lacks the field {error}") from error
        except (TypeError, AttributeError, OverflowError, ValueError) as error:
            said = f"row {len(found)} of {where}, {str(row)[:200]}, cannot be read: {error}"
            raise ValueError(said) from error
    return found


def _rows(
    folder: Path,
    table: str,
    required: Sequence[str] = (),
    also: Sequence[str] = (),
    absent_is_well: bool = False,
) -> Iterator[dict[str, Any]]:
    """The rows of a table, which may stand in numbered files: all columns, or those that are named."""
    require("profiles", pyarrow="pyarrow")
    from pyarrow import ArrowException, parquet

    files = [*folder.glob(f"{table}.parquet"), *sorted(folder.glob(f"{table}_[0-9]*.parquet"))]
    if not files and not absent_is_well:
        raise ValueError(
            f"there is no {table}.parquet in it; it is the folder that the viewer names, with one file a table"
        )
    for file in files:
        try:
            there = parquet.read_schema(file).names
            lost = [name for name in required if name not in there]
            if lost:
                raise ValueError(f"{file.name} has no column {', '.join(lost)}")
            columns = [name for name in (*required, *also) if name in there] if also else None
            yield from parquet.read_table(
                file,
                columns=columns,
                use_threads=False,
                pre_buffer=False,  # callers may fork
            ).to_pylist()
        except (ArrowException, OSError) as error:
            raise ValueError(f"{file.name} is damaged: {error}") from error


def _made(
    form: str,
    summary: Mapping[str, Any],
    instructions: Sequence[MeasuredInstruction],
    packets: Sequence[MeasuredPacket],
    instance: str,
) -> MeasuredProfile:
    numbers = {name: float(value) for name, value in summary.items() if math.isfinite(value)}
    total = numbers.get("total_time", 0.0)
    if "total_time" not in numbers and instructions:
        spans = [(e.start_ns, e.end_ns) for e in instructions]
        spans += [(e.start_ns, e.end_ns) for e in packets]
        total = (max(end for _, end in spans) - min(start for start, _ in spans)) * 1e-9
    if not total > 0:
        raise ValueError(f"it has no positive total_time: {total}")
    return MeasuredProfile(form, total * 1e3, numbers, instructions, packets, instance)


def _instance(fields: object) -> str:
    return str(fields.get("instance_type") or "") if isinstance(fields, Mapping) else ""


def _word(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is no name of an engine or an instruction")
    return name


def _size(value: Any) -> int:
    if int(value) < 0:
        raise ValueError(f"{value} bytes are moved")
    return int(value)


def _engine(name: object) -> str:
    found = _word(name).lower()
    return "tensor" if found.startswith("tensor") else found


def _span(start: Any, duration: Any) -> tuple[float, float]:
    if not 0 <= float(duration) < math.inf:
        raise ValueError(f"it is at {start} ns and has the duration {duration}")
    return float(start), float(start) + float(duration)


def _until(start: Any, end: Any) -> tuple[float, float]:
    return _span(start, float(end) - float(start))


def _line(location: object) -> int:
    """The line of the innermost source location that a profile names; 0 for none."""
    found = _LOCATION.findall(str(location or ""))
    return int(found[-1][1]) if found else 0
