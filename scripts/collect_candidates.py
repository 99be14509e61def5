"""Collect the problems of a benchmark folder into candidates.csv and profile their kernels."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from accelopt.interruption import nothing_to_lose

with nothing_to_lose():
    from accelopt.errors import ConfigError
    from accelopt.evaluation import Case
    from accelopt.kernels.nki.benchmark import read_benchmark
    from accelopt.stages import script_options
    from accelopt.stages.candidate_files import COLLECTED_COLUMNS, collected_rows
    from accelopt.stages.candidate_profiles import Profiled, profile_candidates
    from accelopt.stages.record_files import candidate, read_candidate_table, write_table
    from accelopt.stages.roofline_standings import bound_words


def collect(args: Namespace) -> None:
    base = args.summary_path or os.environ.get("ACCELOPT_BASE_DIR") or "."
    benchmark = read_benchmark(base)
    for sentence in benchmark.broken:
        script_options.say(f"left out: {sentence}")
    if not benchmark.cases:
        raise ConfigError(f"{base} holds no problem that can be used")
    rows = collected_rows(named(benchmark.cases, args.problems))
    write_table(args.output_candidates_path, rows, COLLECTED_COLUMNS)
    script_options.say(f"{len(rows)} candidates in {args.output_candidates_path}")


def named(cases: Sequence[Case], problems: str) -> list[Case]:
    wanted = [name for name in problems.split(",") if name != "all"]
    chosen = [c for c in cases if not wanted or {c.problem, c.case_name} & set(wanted)]
    missing = set(wanted) - {name for c in chosen for name in (c.problem, c.case_name)}
    if missing:
        known = ", ".join(dict.fromkeys(c.problem for c in cases))
        raise ConfigError(f"no problem {min(missing)!r}; there are {known}")
    return chosen


async def profile(args: Namespace) -> None:
    if not args.save_fields_path:
        raise ConfigError("profiling needs --save_fields_path, such as prompts/profile_list.json")
    rows = read_candidate_table(args.output_candidates_path)
    candidates = [candidate(row, args.output_candidates_path) for row in rows]

    def told(done: Profiled) -> None:
        profile = done.evaluation.profile
        verdict = done.evaluation.message
        if profile:
            verdict = f"{profile.latency:.4f} ms  {bound_words(done.candidate)}"
        script_options.say(f"{done.candidate.case.service_name}: {verdict}")

    folder = args.output_profile_path.parent / ".accelopt" / "collect"
    async with script_options.workshop(args, folder) as workshop:
        profiled = await profile_candidates(candidates, workshop.evaluations, told)
    rows = [{**row, "profile": done.column} for row, done in zip(rows, profiled, strict=True)]
    write_table(args.output_profile_path, rows, [*COLLECTED_COLUMNS, "profile"])
    script_options.say(f"profiles in {args.output_profile_path}")


async def main(args: Namespace) -> None:
    if args.mode in ("construct", "collect"):
        collect(args)
    if args.mode in ("construct", "profile"):
        await profile(args)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--summary_path", default="", help="summary.json or the folder that has it")
    parser.add_argument("--problems", default="all", help="names with commas between, or all")
    parser.add_argument("--output_candidates_path", type=Path, required=True)
    parser.add_argument("--output_profile_path", type=Path, required=True)
    parser.add_argument("--save_fields_path", default="")
    parser.add_argument("--nc_id", type=script_options.whole, default=0)
    parser.add_argument("--mode", default="construct", choices=["construct", "collect", "profile"])
    script_options.add_backend_options(parser)
    script_options.run(main(parser.parse_args()))
