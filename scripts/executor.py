"""Carry out plans: write each sample, evaluate it the moment it arrives, repair what failed."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from accelopt.interruption import nothing_to_lose

with nothing_to_lose():
    from accelopt.agents.prompts import PromptPair, read_names
    from accelopt.agents.roles import Prompts
    from accelopt.evaluation import Scrutiny
    from accelopt.nodes import Job, Node, Result, Want
    from accelopt.script_file_columns import NO_IMPLEMENTATION, PlannerResult, ServiceResult
    from accelopt.stages import script_options
    from accelopt.stages.candidate_profiles import nodes_of, with_profiles
    from accelopt.stages.checking_tools import TOOLS, toolbox_for
    from accelopt.stages.planning import view_all
    from accelopt.stages.record_files import read_plans
    from accelopt.stages.run_setup import proposer_for
    from accelopt.stages.samples import ExecutorSettings, Workplace, carry_out_all
    from accelopt.store import write_json

PROMPTS = Path(__file__).resolve().parent.parent / "prompts"


def prompts(args: Namespace) -> Prompts:
    pairs = {
        "executor": PromptPair.read(args.base_prompt_path, args.user_template_path),
        "fixer": PromptPair.read(args.fixer_base_prompt_path, args.fixer_user_template_path),
    }
    return Prompts(
        pairs,
        tuple(read_names(args.save_fields_path)) if args.save_fields_path else (),
    )


def told(node: Node) -> None:
    error = NO_IMPLEMENTATION if node.missing else node.evaluation.message
    verdict = f"{node.speedup:.3f} times as fast" if node.speedup else error
    name = f"{node.parent.name if node.parent else node.name} {node.label}"
    script_options.say(
        f"{name}: {verdict.strip().splitlines()[0] if verdict.strip() else 'failed'}"
    )


def tell_unknown_services(plans: list[PlannerResult], services: set[str]) -> None:
    stale = [result.service_name for result in plans if result.service_name not in services]
    if stale:
        script_options.say(f"plans for {len(stale)} other services are left aside, as {stale[0]}")


async def main(args: Namespace) -> None:
    started = script_options.timestamp()
    configs = {role: script_options.model_config(args, role) for role in ("executor", "fixer")}
    texts = prompts(args)
    plans = read_plans(args.extractor_output_path)
    args.exp_dir.mkdir(parents=True, exist_ok=True)
    folder = args.exp_dir / ".accelopt" / "executor"
    async with script_options.workshop(args, folder, Scrutiny.QUICK) as workshop:
        candidates = await with_profiles(
            args.problems_path,
            workshop.verifications,
            script_options.say,
            {p.service_name for p in plans},
        )
        tell_unknown_services(plans, {candidate.case.service_name for candidate in candidates})
        toolbox = toolbox_for(workshop.evaluations, workshop.offline, args.tools)
        executor = proposer_for(configs, texts, workshop, toolbox).executor
        nodes = nodes_of(candidates, workshop.language)
        rules = None if executor is workshop.offline else workshop.offline
        views = await view_all(nodes, workshop.language, rules=rules)
        settings = ExecutorSettings(args.num_samples, args.fixer_steps)
        workplace = Workplace(executor, workshop.evaluations, settings, told)
        changes = {result.service_name: result.changes() for result in plans}
        made = await carry_out_all(views, changes, workplace, workshop.verifications)
    results = [
        ServiceResult.of(
            Result(Job(0, 0, Want.DEVELOP, view.node), nodes=tuple(nodes)), view.reference
        )
        for view, nodes in zip(views, made, strict=True)
    ]
    write_results(args, results, started)


def write_results(args: Namespace, results: list[ServiceResult], started: str) -> None:
    ended = script_options.timestamp()
    output = {
        "exp_date": args.exp_date,
        "executor_dir": str(args.exp_dir),
        "read_token": args.read_token,
        "executor_start_timestamp": started,
        "executor_end_timestamp": ended,
        "executor_results": [result.to_record() for result in results],
    }
    write_json(args.output_path, output, indent=4)
    script_options.write_times(args.exp_dir, "executor", started, ended)
    samples = [sample for result in results for sample in result.samples.values()]
    written = [sample for sample in samples if sample.body]
    correct = sum(sample.succeeded for sample in written)
    said = f"{correct} of {len(written)} kernels that were written are correct"
    script_options.say(
        f"{said if written else 'no new kernel was written'}; see {args.output_path}"
    )


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--num_samples", type=script_options.count, default=4)
    parser.add_argument("--problems_path", type=Path, required=True)
    parser.add_argument("--nc_id", type=script_options.whole, default=0)
    parser.add_argument("--extractor_output_path", type=Path, required=True)
    parser.add_argument("--exp_dir", type=Path, required=True)
    parser.add_argument("--base_prompt_path", type=Path, required=True)
    parser.add_argument("--user_template_path", type=Path, required=True)
    parser.add_argument("--save_fields_path", type=Path, default=None)
    parser.add_argument("--output_path", type=script_options.output_file, required=True)
    parser.add_argument("--exp_date", required=True)
    parser.add_argument("--read_token", default="unused", help="kept in the output, not used")
    own = "default: the problem's own"
    parser.add_argument("--rel_tol", type=script_options.positive, default=None, help=own)
    rounds = "repair rounds; 0: none"
    parser.add_argument("--fixer_steps", type=script_options.whole, default=2, help=rounds)
    fixer = PROMPTS / "fixer_prompts"
    parser.add_argument("--fixer_base_prompt_path", type=Path, default=fixer / "base_prompt.txt")
    parser.add_argument(
        "--fixer_user_template_path", type=Path, default=fixer / "user_prompt_template.txt"
    )
    parser.add_argument(
        "--tools", type=script_options.whole, default=TOOLS, metavar="CALLS", nargs="?", const=TOOLS
    )
    script_options.add_model_options(parser)
    script_options.add_backend_options(parser)
    script_options.run(main(parser.parse_args()))
