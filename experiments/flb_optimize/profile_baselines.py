"""Profile the selected solutions and add the measured traces to the table.

    python experiments/flb_optimize/profile_baselines.py [--exp_date_base NAME]

The CSV gets the columns trace_path and profile (launch-free latency and more, as JSON), so it can
start the planner or the whole loop with `--backend triton`.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from paths import CHECKPOINTS, HERE, SELECTED

from accelopt.evaluation import to_json
from accelopt.flb_wrapper import FlashInferKernel
from accelopt.kernels.gpu.bench.files.tracefiles import (
    Solution,
    Trace,
    read_json,
    read_workload,
    trace_stem,
)
from accelopt.stages import script_options
from accelopt.stages.record_files import read_candidate_table, write_table
from accelopt.store import write_atomically

COLUMNS = ("definition_path", "solution_path", "workload_path", "trace_path", "profile")


def profile(row: dict[str, str], args: Namespace, folder: Path) -> dict[str, str]:
    kernel = FlashInferKernel(args.traceset_root, row["definition_path"], device=args.device)
    trace, properties = kernel.profile(
        row["solution_path"],
        row["workload_path"],
        timeout_seconds=args.timeout_seconds,
        profile_baseline=True,
    )
    solution = read_json(Solution, Path(row["solution_path"]))
    workload: Trace = read_workload(Path(row["workload_path"]))
    name = f"{trace_stem(workload, solution.name)}.json"
    path = folder / "traces" / kernel.definition.op_type / name
    write_atomically(path, trace.model_dump_json(indent=2) + "\n")
    latency = properties.metadata.get("latency")
    verdict = f"{latency:.4f} ms" if latency else properties.metadata["status"]
    print(f"{trace_stem(workload, solution.name)}: {verdict}", flush=True)
    return {**row, "trace_path": str(path), "profile": to_json(properties.metadata)}


async def main(args: Namespace) -> None:
    folder = args.output / args.exp_date_base if args.exp_date_base else args.output
    args.traceset_root.mkdir(parents=True, exist_ok=True)
    rows = [profile(row, args, folder) for row in read_candidate_table(args.selected)]
    name = f"profiled_baselines_{args.exp_date_base}" if args.exp_date_base else "profile_results"
    write_table(folder / f"{name}.csv", rows, COLUMNS)
    print(f"{len(rows)} rows in {folder / f'{name}.csv'}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--selected", type=Path, default=SELECTED.with_suffix(".csv"))
    parser.add_argument("--traceset_root", type=Path, default=CHECKPOINTS)
    parser.add_argument("--exp_date_base", default="")
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--timeout_seconds", type=int, default=300)
    script_options.run(main(parser.parse_args()))
