"""Choose a workload and the best Triton solution for every definition of a trace folder.

    python experiments/flb_optimize/select_traces.py [--trace_folder DIR] [--hardware NAME]
        [--problems NAMES]
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from paths import SELECTED, add_folder_option
from trace_selection import BOUND_MS, choose

from accelopt.errors import ConfigError
from accelopt.kernels.gpu.bench.files import index_tensors
from accelopt.kernels.gpu.bench.files.tracefiles import Trace, TraceFolder, workload_stem
from accelopt.stages import script_options
from accelopt.store import write_atomically


async def main(args: Namespace) -> None:
    folder = TraceFolder(args.trace_folder)
    wanted = {name for name in args.problems.split(",") if name != "all"}
    if unknown := wanted - folder.definitions.keys():
        known = ", ".join(sorted(folder.definitions))
        raise ConfigError(f"no definition {min(unknown)!r} in {folder.root}; there are {known}")
    lines = []
    for choice in choose(folder, hardware=args.hardware, bound_ms=args.bound_ms):
        if wanted and choice.workload.definition not in wanted:
            continue
        definition = folder.definitions[choice.workload.definition]
        index_tensors.materialise(folder.root, definition, choice.workload.workload)
        chosen = choice.trace or Trace(
            definition=definition.name,
            workload=choice.workload.workload,
            solution=choice.solution.name,
        )
        lines.append(chosen.model_dump_json(exclude_unset=True) + "\n")
        measured = choice.trace.evaluation.performance.latency_ms if choice.trace else None
        shown = "not measured yet" if measured is None else f"{measured:.4f} ms"
        print(f"{workload_stem(choice.workload)}: {choice.solution.name}, {shown}")
    write_atomically(args.output, "".join(lines))
    for problem in folder.problems:
        print(f"problem: {problem}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    add_folder_option(parser)
    parser.add_argument("--hardware", help="default: the one with the most traces")
    parser.add_argument("--problems", default="all", help="definitions with commas between, or all")
    parser.add_argument("--bound_ms", type=float, default=BOUND_MS)
    parser.add_argument("--output", type=Path, default=SELECTED)
    script_options.run(main(parser.parse_args()))
