"""Prepare the folders of a shell loop, or collect what finished loops found: best.py, table, report."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from accelopt.interruption import nothing_to_lose

with nothing_to_lose():
    from accelopt.report.console import output
    from accelopt.report.page import page
    from accelopt.report.result_table import ResultsTable
    from accelopt.report.story import write_story
    from accelopt.stages import script_options
    from accelopt.stages.shell_loops import loops_in, prepare_loops, tell_loops
    from accelopt.store import write_atomically


async def main(args: Namespace) -> None:
    if args.prepare is not None:
        loops = prepare_loops(args.loops_path, args.prepare)
        script_options.say(f"{len(loops)} loops in {args.loops_path}")
        return
    story = tell_loops(args.loops_path)
    write_story(story, args.loops_path)
    write_atomically(args.loops_path / "report.html", page([story]))
    places = [str(loop / "best.py") for loop in loops_in(args.loops_path)]
    output().print(ResultsTable(story.problems, story.device, places))
    script_options.say(f"report: {args.loops_path / 'report.html'}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--loops_path", type=Path, required=True, help="a folder with a loop each")
    ready = "make the loops' folders, with this model configuration"
    parser.add_argument("--prepare", type=Path, default=None, metavar="MODEL_CONFIG", help=ready)
    script_options.run(main(parser.parse_args()))
