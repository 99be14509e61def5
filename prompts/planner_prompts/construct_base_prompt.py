"""Append experiences to the planner's base prompt."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from accelopt.agents.experience_text import with_experiences
from accelopt.agents.prompts import read_text
from accelopt.stages import script_options
from accelopt.stages.record_files import read_experiences
from accelopt.store import write_atomically


async def main(args: Namespace) -> None:
    """Read the base prompt and the list, write the new base prompt."""
    experiences = read_experiences(args.summarizer_output_list_path)
    text = with_experiences(read_text(args.original_base_prompt_path), experiences)
    write_atomically(args.new_base_prompt_path, text)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--original_base_prompt_path", type=Path, required=True)
    parser.add_argument("--summarizer_output_list_path", type=Path, required=True)
    parser.add_argument("--new_base_prompt_path", type=Path, required=True)
    script_options.run(main(parser.parse_args()))
