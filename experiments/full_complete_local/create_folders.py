"""Make a folder and a loop script for every profiled problem.

Run in this folder. Each problem gets `../checkpoints/{exp_date_base}/{service_name}/` with the
model configurations and its profiled baseline, and `run_single_loop_{service_name}.sh` beside it.
"""

import shutil
from argparse import ArgumentParser, Namespace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from loop_script import SETTINGS, loop_script

from accelopt.errors import ConfigError
from accelopt.stages import script_options
from accelopt.stages.record_files import read_table, write_table

PACIFIC = ZoneInfo("America/Los_Angeles")


async def main(args: Namespace) -> None:
    base = (Path("..") / "checkpoints" / args.exp_date_base).resolve()
    started = datetime.now(PACIFIC).strftime("%m-%d-%H-%M")
    for index, row in enumerate(read_table(Path("profile_results.csv"))):
        service = row["service_name"]
        folder = base / service
        if folder.exists():
            raise ConfigError(f"{folder} is there already; choose another --exp_date_base")
        prefix = f"eval-{index}-{args.exp_date_base}"
        first = f"{prefix}-{started}"
        shutil.copytree("configs", folder / "configs")
        write_table(folder / first / "candidates" / "profile_results.csv", [row], list(row))
        script = base / f"run_single_loop_{service}.sh"
        arguments = [folder, first, prefix, index % args.cores, args.project_name]
        script.write_text(loop_script("run_single_loop.sh", arguments, args.org_name, service))
        script.chmod(0o755)
    script_options.say(f"folders and loop scripts in {base}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--project_name", required=True)
    parser.add_argument("--org_name", required=True)
    parser.add_argument("--exp_date_base", required=True)
    parser.add_argument("--cores", type=int, default=32, help="NeuronCores of the machine")
    parser.epilog = f"settings of every loop: {SETTINGS}"
    script_options.run(main(parser.parse_args()))
