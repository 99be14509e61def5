"""Write the selected definitions, solutions and workloads as files, and a CSV of their paths.

    python experiments/flb_optimize/create_files.py [--trace_folder DIR]
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from paths import HERE, SELECTED, add_folder_option

from accelopt.kernels.gpu.bench.files.tracefiles import (
    Trace,
    TraceFolder,
    workload_stem,
    write_json,
)
from accelopt.stages import script_options
from accelopt.stages.record_files import write_table

COLUMNS = ("definition_path", "solution_path", "workload_path")


async def main(args: Namespace) -> None:
    folder = TraceFolder(args.trace_folder)
    rows = []
    for line in args.selected.read_text().splitlines():
        trace = Trace.model_validate_json(line)
        definition = folder.definitions[trace.definition]
        solution = folder.solutions[str(trace.solution)]
        workload = Trace(definition=trace.definition, workload=trace.workload)
        stem = f"{workload_stem(trace)}.json"
        kind = definition.op_type
        paths = (
            write_json(definition, args.output / "definitions" / kind / f"{definition.name}.json"),
            write_json(
                solution,
                args.output / "solutions" / kind / definition.name / f"{solution.name}.json",
            ),
            write_json(workload, args.output / "workloads" / kind / stem),
        )
        rows.append(dict(zip(COLUMNS, map(str, paths), strict=True)))
    table = args.selected.with_suffix(".csv")
    write_table(table, rows, COLUMNS)
    print(f"{len(rows)} rows in {table}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    add_folder_option(parser)
    parser.add_argument("--selected", type=Path, default=SELECTED)
    parser.add_argument("--output", type=Path, default=HERE)
    script_options.run(main(parser.parse_args()))
