"""Choose slow and fast pairs of an executor's results and have each summarised."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from accelopt.interruption import nothing_to_lose

with nothing_to_lose():
    from accelopt.agents.prompts import PromptPair
    from accelopt.agents.roles import Prompts
    from accelopt.nodes import Node
    from accelopt.search.experience_list import MemorySettings, select_contrasts
    from accelopt.stages import script_options
    from accelopt.stages.learning import summarize_contrasts
    from accelopt.stages.record_files import read_results, write_records
    from accelopt.stages.run_setup import proposer_for
    from accelopt.store import write_json


def write_choice(args: Namespace, contrasts: list[Node]) -> None:
    plan_ids: dict[str, list[str]] = {}
    speedups: dict[str, list[float]] = {}
    for contrast in contrasts:
        plan_ids.setdefault(contrast.parent.name, []).append(contrast.label)
        speedups.setdefault(contrast.parent.name, []).append(contrast.speedup)
    write_json(args.output_plan_ids_path, plan_ids, indent=4)
    write_json(args.output_speedups_path, speedups, indent=4)


async def main(args: Namespace) -> None:
    config = script_options.model_config(args, "summarizer")
    pair = PromptPair.read(args.base_prompt_path, args.user_template_path)
    results = read_results(args.executor_results_path)
    settings = MemorySettings(args.max_threshold, args.min_threshold, args.topk)
    contrasts = select_contrasts(results, settings)
    write_choice(args, contrasts)
    folder = args.output_list_path.parent / ".accelopt" / "rewrites"
    async with script_options.workshop(args, folder) as workshop:
        prompts = Prompts({"summarizer": pair})
        summarizer = proposer_for({"summarizer": config}, prompts, workshop).summarizer
        origin = str(args.executor_results_path)
        experiences = await summarize_contrasts(
            contrasts, summarizer, language=workshop.language, origin=origin
        )
    write_records(args.output_list_path, experiences)
    script_options.say(f"{len(experiences)} rewrites in {args.output_list_path}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--executor_results_path", type=Path, required=True)
    parser.add_argument("--base_prompt_path", type=Path, required=True)
    parser.add_argument("--user_template_path", type=Path, required=True)
    parser.add_argument("--output_list_path", type=Path, required=True)
    parser.add_argument("--max_threshold", type=script_options.positive, required=True)
    parser.add_argument("--min_threshold", type=script_options.positive, required=True)
    parser.add_argument("--topk", type=script_options.whole, required=True)
    parser.add_argument("--output_plan_ids_path", type=Path, required=True)
    parser.add_argument("--output_speedups_path", type=Path, required=True)
    script_options.add_model_options(parser)
    script_options.add_backend_options(parser)
    script_options.run(main(parser.parse_args()))
