"""The Region-DAG as JSON for models and files."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable

from accelopt.ptx.control_flow import JUMPS
from accelopt.ptx.module import NotPtx
from accelopt.ptx.phases import ADDRESS, ASYNC_WAIT, BARRIER, CONTROL, MOVE, OTHER
from accelopt.ptx.regions import LoopWork, Region, RegionDag, Stage
from accelopt.ptx.work_counts import Work

Json = dict[str, object]
MOST_ENDS, MOST_PLACES = 8, 16
_LONG_VECTOR = re.compile(r"\{([^{},]+),(?:[^{},]+,){7,}([^{},]+)\}")
QUIET = frozenset({ADDRESS, MOVE, CONTROL, OTHER})
"""Phases that a stage leaves out where they do nothing else."""


def overview(dag: RegionDag, max_hot_stages: int = 4, max_hot_regions: int = 8) -> Json:
    """Counts, the stages and regions that move and compute most, loops, and what is odd. Work is that
    of a block, in loops a trip."""
    hot = dag.hot[:max_hot_regions]
    stages = list(dict.fromkeys(one.stage_id for one in dag.hot))[:max_hot_stages]
    return {
        "metadata": metadata(dag),
        "pipeline_stages": [_stage(dag.stages[at]) for at in stages],
        "hot_regions": [_hot(one) for one in hot],
        "loops": [_loop(one) for one in dag.loops],
        "stages_with_potential_divergence": [one.stage_id for one in dag.stages if one.divergent],
        "work_outside_loops": _split(dag.outside),
        "findings": findings(dag),
    }


def metadata(dag: RegionDag) -> Json:
    """Which kernel, and how many of everything."""
    phases: Counter[str] = Counter()
    for stage in dag.stages:
        phases.update(stage.phase_mix)
    return {
        "kernel_name": dag.function.name,
        "kernels": list(dag.module.kernels),
        "target": dag.module.target,
        "threads": dag.threads,
        "work_is_per": "block" if dag.threads else "thread",
        "shared_bytes": dag.shared_bytes,
        "counts": {
            "num_instructions": len(dag.function.statements),
            "num_regions": len(dag.regions),
            "num_edges": len(dag.edges),
            "num_stages": len(dag.stages),
            "num_loops": len(dag.loops),
            "num_blocks": len(dag.flow.blocks),
            "num_unknown": len(dag.unknown),
            "num_divergent": len(dag.flow.divergent),
            "num_barriers": phases[BARRIER],
            "num_waits": phases[ASYNC_WAIT],
            "num_branches": sum(one.opcode in JUMPS for one in dag.function.statements),
        },
    }


def findings(dag: RegionDag) -> Json:
    """What is odd, by regions and by lines of the PTX; round trips as region that stores, that loads,
    bytes."""
    lines = [one.line for one in dag.function.statements]
    regions = {at: one.region_id for one in dag.regions for at in range(one.first, one.last + 1)}
    found: Json = {}
    for name, places in (
        ("orphan_copies", dag.copies.unawaited),
        ("orphan_waits", dag.copies.idle),
        ("spills", dag.spills),
    ):
        found[name] = list(dict.fromkeys(regions[at] for at in places))[:MOST_PLACES]
        found[f"{name}_lines"] = [lines[at] for at in places[:MOST_PLACES]]
    return {
        **found,
        "num_spills": len(dag.spills),
        "epilogue_round_trips": [list(one) for one in dag.round_trips],
        "unknown_opcodes": sorted(set(dag.unknown)),
        "irreducible_jumps": dag.flow.irreducible,
    }


def stage_detail(dag: RegionDag, stage_id: int) -> Json:
    """One stage, and of its regions that do more than addresses and moves: number, phase, instructions,
    loop. Raises NotPtx when there is no such stage."""
    if not 0 <= stage_id < len(dag.stages):
        raise NotPtx(f"no stage {stage_id}: stages go from 0 to {len(dag.stages) - 1}")
    stage = dag.stages[stage_id]
    regions = [dag.regions[at] for at in stage.region_ids]
    shown = [one for one in regions if (one.phase not in QUIET or any(amounts(one.work)))]
    return {
        **_stage(stage),
        "regions": [[one.region_id, one.phase, len(one.statements), one.loop] for one in shown],
        "without_work": len(regions) - len(shown),
    }


def region_detail(dag: RegionDag, region_id: int, max_insts: int = 16, whole: bool = False) -> Json:
    """One region with its PTX, in which long vectors show their ends unless `whole`, and the regions that
    each kind of edge joins it to. Raises NotPtx when there is no such region."""
    if not 0 <= region_id < len(dag.regions):
        raise NotPtx(f"no region {region_id}: regions go from 0 to {len(dag.regions) - 1}")
    one = dag.regions[region_id]
    return {
        **_hot(one),
        "ptx_source_line_range": [one.start_line, one.end_line],
        "source_lines": [f"{place.file}:{place.line}" for place in one.sources],
        "ptx_snippet": [
            part.text if whole else _LONG_VECTOR.sub(r"{\1,...,\2}", part.text)
            for part in one.statements[:max_insts]
        ],
        "instructions": len(one.statements),
        "has_potential_divergence": one.divergent,
        "only_some_threads": one.partial,
        "from": _ends((edge.kind, edge.source) for edge in dag.edges if edge.target == region_id),
        "to": _ends((edge.kind, edge.target) for edge in dag.edges if edge.source == region_id),
        "work_profile": _profile(one.work),
    }


def _ends(edges: Iterable[tuple[str, int]]) -> Json:
    """The regions at the other ends of edges, by kind; of many the first and how many there are."""
    found: dict[str, list[int]] = {}
    for kind, region in edges:
        found.setdefault(kind, []).append(region)
    return {
        kind: ends if len(ends) <= MOST_ENDS else [*ends[:MOST_ENDS], f"of {len(ends)}"]
        for kind, ends in found.items()
    }


def to_json(dag: RegionDag) -> str:
    """Everything, as the text of `dag_analysis.json`."""
    whole: Json = {
        **overview(dag, len(dag.stages), len(dag.regions)),
        "pipeline_stages": [_stage(one) for one in dag.stages],
        "regions": [
            {**_hot(one), "loop": one.loop, "instructions": len(one.statements)}
            for one in dag.regions
        ],
        "edges": [one._asdict() for one in dag.edges],
    }
    return json.dumps(whole, indent=1)


def _amount(known: int, unknown: int) -> object:
    return "unknown" if unknown and not known else known


def _profile(work: Work) -> Json:
    found: Json = {
        "global_bytes": _amount(work.global_bytes, work.unknown_bytes),
        "shared_read_bytes": work.shared_read_bytes,
        "shared_write_bytes": work.shared_write_bytes,
        "flops": _amount(work.flops, work.unknown_flops),
        "instruction_count": work.instruction_count,
        "atomic_ops": work.atomic_ops,
    }
    extra = {
        "sfu_ops": work.sfu_ops, "local_bytes": work.local_bytes, "masked": work.masked,
        "expected_bytes": work.expected_bytes, "unknown_bytes": work.unknown_bytes,
        "unknown_flops": work.unknown_flops, "generic": work.generic,
    }  # fmt: skip
    return {**found, **{name: amount for name, amount in extra.items() if amount}}


def _split(work: Work) -> Json:
    """A profile with what is read and written of global memory apart."""
    apart = {
        "global_read_bytes": _amount(work.global_read_bytes, work.unknown_bytes),
        "global_write_bytes": work.global_write_bytes,
    }
    return {**_profile(work), **apart}


def _stage(stage: Stage) -> Json:
    ids = list(stage.region_ids)
    return {
        "stage_id": stage.stage_id,
        "region_ids": ids if len(ids) <= 8 else [ids[0], "...", ids[-1]],
        "phase_mix": dict(stage.phase_mix),
        "work_profile": _profile(stage.work),
        "has_potential_divergence": stage.divergent,
    }


def _hot(one: Region) -> Json:
    return {
        "region_id": one.region_id,
        "stage_id": one.stage_id,
        "phase": one.phase,
        "global_bytes": _amount(one.work.global_bytes, one.work.unknown_bytes),
        "shared_bytes": one.work.shared_bytes,
        "flops": _amount(one.work.flops, one.work.unknown_flops),
        "start_line": one.start_line,
        "end_line": one.end_line,
    }


def _loop(one: LoopWork) -> Json:
    found: Json = {
        "loop_id": one.loop.number,
        "depth": one.loop.depth,
        "parent": one.loop.parent,
        "trips": one.loop.trips,
        "start_line": one.start_line,
        "end_line": one.end_line,
    }
    if one.loop.waits:
        return {**found, "only_waits": True}
    return {**found, "work_a_trip": _split(one.work)}


def amounts(work: Work) -> Iterable[str]:
    """The amounts of a work that are not zero, in words."""
    named = {
        "B global": work.global_bytes, "B shared": work.shared_bytes, "B local": work.local_bytes,
        "FLOP": work.flops, "special functions": work.sfu_ops, "atomics": work.atomic_ops,
    }  # fmt: skip
    return [f"{amount:,} {name}" for name, amount in named.items() if amount]
