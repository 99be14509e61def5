"""How many small faults does the referee let through?

Every honest kernel of `tests/hostile` (or the kernels named) is changed in one place at a time: a
number becomes zero, or is off by a percent; a loop runs once less; an operation is left out and its
first operand taken instead; its operands change places. Mutants that do not compile say nothing and
are not counted. What passes is printed for a person to judge: an equivalent kernel may pass.

    python benchmarks/referee_mutations.py [KERNEL REFERENCE]
"""

from __future__ import annotations

import argparse
import ast
import copy
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from accelopt.evaluation import EvaluationRequest, Scrutiny, Status
from accelopt.kernels.nki.judging import evaluate, trial_store

HOSTILE = Path(__file__).resolve().parents[1] / "tests" / "hostile"
COMMUTATIVE = {"add", "multiply", "maximum", "minimum"}
SAYS_NOTHING = {Status.COMPILE_ERROR, Status.CRASH, Status.TIMEOUT}


class Mutant(NamedTuple):
    """A changed source and the change in words."""

    change: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Every single change of the kernel's body, one at a time."""
    tree = ast.parse(source)
    for index, node in enumerate(ast.walk(tree)):
        for number, change in enumerate(_changes(node)):
            changed = copy.deepcopy(tree)
            target = list(ast.walk(changed))[index]
            replacement = list(_changes(target))[number][1]
            mutated = ast.unparse(
                ast.fix_missing_locations(Replace(target, replacement).visit(changed))
            )
            line = getattr(node, "lineno", 0)
            yield Mutant(f"line {line}: {ast.unparse(node)} -> {change[0]}", mutated)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        near = node.value * 1.01 if isinstance(node.value, float) else node.value - 1
        for value in {0 * node.value, near} - {node.value}:
            yield str(value), ast.Constant(value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr in ("affine_range", "sequential_range"):
            fewer = ast.BinOp(node.args[0], ast.Sub(), ast.Constant(1))
            call = ast.Call(node.func, [fewer, *node.args[1:]], node.keywords)
            yield ast.unparse(call), call
        elif node.func.attr not in ("load", "store", "ndarray", "zeros"):
            yield ast.unparse(node.args[0]), node.args[0]
            if len(node.args) == 2 and node.func.attr not in COMMUTATIVE:
                call = ast.Call(node.func, node.args[::-1], node.keywords)
                yield ast.unparse(call), call


class Replace(ast.NodeTransformer):
    """Puts `replacement` where `target` stands."""

    def __init__(self, target: ast.AST, replacement: ast.expr) -> None:
        self.target, self.replacement = target, replacement

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, or what stands in its place."""
        if node is self.target:
            return self.replacement
        return self.generic_visit(node)


def reference_of(kernel: Path) -> str:
    """The name in a museum kernel's first line, `# reference: softmax`."""
    return kernel.read_text().partition("\n")[0].partition(": ")[2]


def judge(kernel: Path, reference: Path, folder: Path) -> Counter[str]:
    """Evaluate every mutant of one kernel, print those that pass, and count."""
    counts: Counter[str] = Counter()
    trials = trial_store(folder)
    for number, mutant in enumerate(mutants(kernel.read_text())):
        path = folder / f"mutant_{number}.py"
        path.write_text(mutant.source)
        request = EvaluationRequest(kernel=str(path), task=str(reference), scrutiny=Scrutiny.FULL)
        evaluation = evaluate(request, trials=trials)
        if evaluation.status in SAYS_NOTHING:
            counts["say nothing"] += 1
        elif evaluation.status is Status.CORRECT:
            counts["pass"] += 1
            print(f"  {kernel.stem}: {mutant.change}", flush=True)
        else:
            counts["refused"] += 1
    return counts


def main() -> None:
    """Judge the mutants and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", nargs="?", type=Path)
    parser.add_argument("reference", nargs="?", type=Path)
    options = parser.parse_args()
    pairs = [(options.kernel, options.reference)]
    if options.kernel is None:
        pairs = [
            (path, HOSTILE / "references" / f"{reference_of(path)}.py")
            for path in sorted((HOSTILE / "kernels").glob("honest_*.py"))
        ]
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for kernel, reference in pairs:
            counts = judge(kernel, reference, Path(folder))
            print(kernel.stem, dict(counts), flush=True)
            total += counts
    print("all", dict(total))


if __name__ == "__main__":
    main()
