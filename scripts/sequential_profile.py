"""Profile every candidate of a table; the output is the table with a `profile` column."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from accelopt.interruption import nothing_to_lose

with nothing_to_lose():
    from accelopt.stages import script_options
    from accelopt.stages.candidate_profiles import Profiled, profile_candidates
    from accelopt.stages.record_files import candidate, read_candidate_table, write_table


async def main(args: Namespace) -> None:
    rows = read_candidate_table(args.candidates_path)
    candidates = [candidate(row, args.candidates_path) for row in rows]
    folder = args.output_path.parent / ".accelopt" / "profile"

    def told(done: Profiled) -> None:
        if done.evaluation.profile is None:
            script_options.say(f"{done.candidate.case.service_name}: {done.evaluation.message}")

    async with script_options.workshop(args, folder) as workshop:
        profiled = await profile_candidates(candidates, workshop.evaluations, told)
    columns = [name for name in rows[0] if name != "profile"]
    rows = [{**row, "profile": done.column} for row, done in zip(rows, profiled, strict=True)]
    write_table(args.output_path, rows, [*columns, "profile"])
    failed = sum(done.evaluation.profile is None for done in profiled)
    script_options.say(f"{len(rows) - failed} of {len(rows)} profiles in {args.output_path}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--candidates_path", type=Path, required=True)
    parser.add_argument("--save_fields_path", type=Path, required=True)
    parser.add_argument("--output_path", type=script_options.output_file, required=True)
    parser.add_argument("--nc_id", type=script_options.whole, required=True)
    parser.add_argument("--rel_tol", type=script_options.positive, required=True)
    script_options.add_backend_options(parser)
    script_options.run(main(parser.parse_args()))
