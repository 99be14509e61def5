"""Draw plans for every candidate of a profile_results.csv."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from accelopt.interruption import nothing_to_lose

with nothing_to_lose():
    from accelopt.agents.prompts import PromptPair, read_names
    from accelopt.agents.roles import Prompts, read_aspects
    from accelopt.stages import script_options
    from accelopt.stages.candidate_profiles import nodes_of
    from accelopt.stages.checking_tools import TOOLS, toolbox_for
    from accelopt.stages.planning import draw_plans, view_all
    from accelopt.stages.record_files import history_beside, read_candidates, write_records
    from accelopt.stages.run_setup import proposer_for


def prompts(args: Namespace) -> Prompts:
    pair = PromptPair.read(args.base_prompt_path, args.user_template_path)
    shown = read_names(args.displayed_profiles_path) if args.displayed_profiles_path else []
    aspects = read_aspects(args.user_template_path.parent)
    return Prompts({"planner": pair}, tuple(shown), aspects)


async def main(args: Namespace) -> None:
    started = script_options.timestamp()
    config, texts = script_options.model_config(args, "planner"), prompts(args)
    candidates = read_candidates(args.profile_result_path)
    history = history_beside(args.profile_result_path)
    async with script_options.workshop(args, args.exp_dir / ".accelopt" / "planner") as workshop:
        toolbox = toolbox_for(workshop.evaluations, workshop.offline, args.tools)
        planner = proposer_for({"planner": config}, texts, workshop, toolbox).planner
        rules = None if config.offline else workshop.offline
        nodes = nodes_of(candidates, workshop.language)
        views = await view_all(nodes, workshop.language, history, rules)
        results = await draw_plans(views, planner, args.breadth)
    write_records(args.output_path, results)
    script_options.write_times(args.exp_dir, "planner", started, script_options.timestamp())
    drawn = sum(len(result.plans) for result in results)
    script_options.say(f"{drawn} plans for {len(results)} candidates in {args.output_path}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--output_path", type=script_options.output_file, required=True)
    parser.add_argument("--breadth", type=script_options.count, required=True)
    parser.add_argument("--exp_dir", type=Path, required=True)
    parser.add_argument("--base_prompt_path", type=Path, required=True)
    parser.add_argument("--user_template_path", type=Path, required=True)
    parser.add_argument("--profile_result_path", type=Path, required=True)
    parser.add_argument("--displayed_profiles_path", type=Path, default=None)
    parser.add_argument("--tools", type=script_options.whole, default=TOOLS, metavar="CALLS")
    script_options.add_model_options(parser)
    script_options.add_backend_options(parser)
    script_options.run(main(parser.parse_args()))
