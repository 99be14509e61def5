"""Choose the kernels that the next iteration starts from, and write them as files."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from accelopt.interruption import nothing_to_lose

with nothing_to_lose():
    from accelopt.nodes import Node
    from accelopt.script_file_columns import CANDIDATE_COLUMNS
    from accelopt.search.candidate_selection import SELECTIONS
    from accelopt.stages import script_options
    from accelopt.stages.candidate_files import select, write_candidate
    from accelopt.stages.record_files import read_executor_results, write_table


def made_from(node: Node) -> Node:
    return node.parent or node


async def main(args: Namespace) -> None:
    services = read_executor_results(args.executor_results_path)
    results = [result for service in services if (result := service.result()) is not None]
    parents = [result.job.node for result in results]
    references = {service.service_name: service.reference for service in services}
    selected = select(results, SELECTIONS[args.selection], args.topk)
    folder = args.output_base_path.resolve()  # the next stage may run in another folder
    rows = [
        write_candidate(node, parents, references[made_from(node).name], folder).to_row()
        for node in selected
    ]
    write_table(args.output_base_path / "candidates.csv", rows, CANDIDATE_COLUMNS)
    script_options.say(f"{len(rows)} candidates in {args.output_base_path / 'candidates.csv'}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--executor_results_path", type=Path, required=True)
    parser.add_argument("--output_base_path", type=Path, required=True)
    parser.add_argument("--topk", type=script_options.count, default=1)
    parser.add_argument("--selection", choices=sorted(SELECTIONS), default="elitist")
    script_options.run(main(parser.parse_args()))
