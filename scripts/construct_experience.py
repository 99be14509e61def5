"""Merge an iteration's rewrites into the list of experiences, or draw the first list."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from accelopt.interruption import nothing_to_lose

with nothing_to_lose():
    from accelopt.errors import ConfigError
    from accelopt.search.experience_list import draw, remember
    from accelopt.stages import script_options
    from accelopt.stages.record_files import read_experiences, write_records


async def main(args: Namespace) -> None:
    earlier = read_experiences(args.experience_list_path)
    if args.is_first:
        experiences = draw(earlier, args.n)
    elif not args.original_rewrite_list_path:
        raise ConfigError("without --is_first, --original_rewrite_list_path is needed")
    else:
        new = read_experiences(Path(args.original_rewrite_list_path))
        experiences = remember(new, earlier, args.n)
    write_records(args.output_path, experiences)
    script_options.say(f"{len(experiences)} experiences in {args.output_path}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--is_first", action="store_true", help="draw from the list alone")
    parser.add_argument("--original_rewrite_list_path", default="")
    parser.add_argument("--experience_list_path", type=Path, required=True)
    parser.add_argument("--output_path", type=script_options.output_file, required=True)
    parser.add_argument("--n", type=script_options.whole, required=True)
    script_options.run(main(parser.parse_args()))
