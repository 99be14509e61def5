"""Make a resume script for every problem that has not finished all of its iterations."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from loop_script import SETTINGS, loop_script

from accelopt.stages import script_options
from accelopt.stages.record_files import read_table


async def main(args: Namespace) -> None:
    base = (Path("..") / "checkpoints" / args.exp_date_base).resolve()
    for index, row in enumerate(read_table(Path("profile_results.csv"))):
        service = row["service_name"]
        log = base / service / "log.txt"
        finished = log.read_text().split() if log.exists() else []
        if not finished:
            script_options.say(f"{service}: nothing finished yet; run run_single_loop_{service}.sh")
            continue
        if len(finished) > int(SETTINGS["ITERS"]):
            script_options.say(f"{service}: finished")
            continue
        prefix = f"eval-{index}-{args.exp_date_base}"
        arguments = [base / service, finished[-1], prefix, index % args.cores, args.project_name]
        script = base / f"resume_single_loop_{service}.sh"
        script.write_text(loop_script("resume_single_loop.sh", arguments, args.org_name, service))
        script.chmod(0o755)
        script_options.say(f"{service}: continue after {finished[-1]}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--project_name", required=True)
    parser.add_argument("--org_name", required=True)
    parser.add_argument("--exp_date_base", required=True)
    parser.add_argument("--cores", type=int, default=32, help="NeuronCores of the machine")
    script_options.run(main(parser.parse_args()))
