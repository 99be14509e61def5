"""Make the kernels of spec files faster by graph search: Triton and CUDA kernels, and NKIBench's."""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from accelopt.interruption import nothing_to_lose

with nothing_to_lose():
    from accelopt.cli.spec_files import SpecRun, gather_transitions, optimize_specs
    from accelopt.errors import AcceloptError, ConfigError, sentence
    from accelopt.hardware.front_ends import FRONT_ENDS
    from accelopt.kernels.specs.control_file import evaluate_control
    from accelopt.search.mcgs import REWARDS
    from accelopt.search.method_catalog import GRAPH
    from accelopt.search.strategy import STRATEGIES
    from accelopt.stages import script_options
    from accelopt.store import write_json

KEY, URL, CACHE = "OPENAI_API_KEY", "OPENAI_BASE_URL", "COMPILE_CACHE_DIR"
PUBLIC = "https://api.openai.com/v1"


def main(args: Namespace) -> None:
    cache = os.environ.get(CACHE)
    if args.worker is not None:
        evaluate_control(args.worker, Path(cache) if cache else None)
        return
    if args.build_regraph or args.regraph_autobuild:
        count = gather_transitions(args.outdir)
        print(f"{count} transitions in {args.outdir / GRAPH}")
    if args.build_regraph:
        return
    model = model_of(args)
    search = args.search or ("mcgs" if model is None else "regraph")
    options = {"reward": args.reward} if search in ("mcgs", "regraph") else {}
    run = SpecRun(
        source=args.input,
        out=args.outdir,
        gpus=args.gpus,
        budget=args.budget_builds,
        profile_every=args.ncu_every,
        resume=args.resume,
        backend=args.backend,
        target=args.target,
        compiler=args.compiler,
        window=args.window,
        seed=args.seed,
        strategy=search,
        options={**options, **({"filter": args.regraph_filter} if search == "regraph" else {})},
        least_gain=args.min_pred_gain,
        regraph=args.regraph,
        model_config=model,
        seconds=args.time,
    )
    for kernel in optimize_specs(run):
        outcome = kernel.outcome
        if outcome.best is None:
            print(f"{kernel.name}: {outcome.failure}")
            continue
        times = f"{outcome.start.latency:.4g} ms to {outcome.best.latency:.4g} ms"
        print(f"{kernel.name}: {times}, {outcome.speedup:.3f}x; {kernel.folder}")


def model_of(args: Namespace) -> Path | None:
    """The model configuration: the one that is named, or one of the environment's endpoint."""
    if args.no_llm:
        return None
    if args.model_config is not None:
        return Path(args.model_config)
    if not os.environ.get(KEY):
        raise ConfigError(f"{KEY} is not set; set it, or use --no-llm for the rules alone")
    url = os.environ.get(URL, PUBLIC)
    path = Path(args.outdir) / "model.json"
    write_json(path, {"url": url, "model": args.llm_model, "api_key_env": KEY})
    return path


def indices(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise ArgumentTypeError(f"{text!r} is not a list of GPUs such as 0,1")
    return found


def parser() -> ArgumentParser:
    made = ArgumentParser(description=__doc__)
    made.add_argument("--input", default="kernels.json", help="spec file, or folder of *.json")
    made.add_argument("--outdir", type=Path, default=Path("out"))
    made.add_argument("--gpus", type=indices, default=(0,), help="indices with commas")
    made.add_argument(
        "--budget-builds", type=script_options.count, default=20, help="evaluations a kernel"
    )
    made.add_argument("--time", type=float, metavar="SECONDS",
                      help="for the whole run: no build is begun that, with final checks and files, would "
                      "take longer; default: no limit")  # fmt: skip
    made.add_argument("--min-pred-gain", type=float, default=0.02, help="prune weaker moves")
    made.add_argument("--llm-model", default="gpt-5-mini", help=f"of the endpoint in {URL}")
    made.add_argument("--no-llm", action="store_true", help="rules only")
    made.add_argument("--ncu-every", type=script_options.whole, default=0,
                      help="profile every N-th kernel that is diagnosed; 0: none")  # fmt: skip
    made.add_argument("--resume", action="store_true", help="continue, also with a larger budget")
    made.add_argument(
        "--worker", type=Path, metavar="CONTROL.json", help="one evaluation, internal"
    )
    made.add_argument("--backend", default="", choices=["", "nki"],
                      help="nki: --input names problems of NKIBench, or a folder like it")  # fmt: skip
    made.add_argument("--target", default="", help="h200, h100, a100, trn1, trn2")
    made.add_argument("--compiler", default="", help="front end for NKI: " + ", ".join(FRONT_ENDS))
    made.add_argument(
        "--window", type=script_options.whole, default=0, help="jobs under way; 0: one a GPU"
    )
    made.add_argument("--seed", type=script_options.whole, default=0)
    made.add_argument("--reward", default="log", choices=sorted(REWARDS))
    made.add_argument("--search", default="", choices=["", *sorted(STRATEGIES)],
                      help="by default regraph with a model, else mcgs")  # fmt: skip
    made.add_argument("--regraph", type=Path, help="what another run learned: its folder or graph")
    made.add_argument("--regraph-filter", default="soft", choices=["soft", "hard", "off"])
    made.add_argument("--build-regraph", action="store_true",
                      help="gather what was learned in --outdir into regraph.json, and exit")  # fmt: skip
    made.add_argument("--regraph-autobuild", action="store_true", help="the same, then search")
    made.add_argument(
        "--model-config", type=Path, help="model configuration, instead of the environment"
    )
    return made


if __name__ == "__main__":
    arguments = parser().parse_args()
    try:
        main(arguments)
    except (AcceloptError, OSError) as error:
        sys.exit(f"error: {sentence(error)}")
