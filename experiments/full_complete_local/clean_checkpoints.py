"""Move iterations without usable results out of the way, and shorten log.txt to those before them.

An iteration is usable when its executor_results.json can be read and holds at least one sample
that was evaluated. Nothing is deleted: folders go to `discarded/` beside them.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.evaluation import Status
from accelopt.stages import script_options
from accelopt.stages.record_files import read_executor_results
from accelopt.store import write_atomically


def usable(iteration: Path) -> bool:
    try:
        results = read_executor_results(iteration / "executor_results.json")
    except ConfigError:
        return False
    samples = [sample for result in results for sample in result.samples.values()]
    return any(
        sample.body is not None and sample.status is not Status.MISSING for sample in samples
    )


async def main(args: Namespace) -> None:
    for log in sorted(args.chkpt_path.glob("*/log.txt")):
        named = log.read_text().split()
        kept = named
        for at, exp_date in enumerate(named):
            if not usable(log.parent / exp_date):
                kept = named[:at]
                break
        for exp_date in named[len(kept) :]:
            if (log.parent / exp_date).is_dir():
                (log.parent / "discarded").mkdir(exist_ok=True)
                (log.parent / exp_date).rename(log.parent / "discarded" / exp_date)
        write_atomically(log, "".join(f"{exp_date}\n" for exp_date in kept))
        last = kept[-1] if kept else "the start"
        script_options.say(
            f"{log.parent.name}: {len(kept)} of {len(named)} kept, continue from {last}"
        )


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--chkpt_path", type=Path, required=True)
    script_options.run(main(parser.parse_args()))
