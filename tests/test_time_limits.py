"""A time limit is said in `accelopt/time_limits.py` and nowhere else."""

import ast
import re
from pathlib import Path

import accelopt
from accelopt import time_limits

ROOT = Path(accelopt.__file__).parent
# What is measured for, or waited for between looks, limits nothing.
MEASURED_FOR = {
    "interruption.py": {"POLL_SECONDS"},
    "fsm/fsm_manager.py": {"LOOK_SECONDS", "LAST_SECONDS"},
    "kernels/gpu/bench/judging/evaluation_task.py": {"seconds", "judging_seconds"},
    "kernels/gpu/bench/process/candidate.py": {"ROUND_SECONDS", "PACKAGE_SECONDS", "call_seconds"},
    "kernels/gpu/bench/process/profiled_call.py": {"STEP_SECONDS"},
    "kernels/gpu/bench/process/referee.py": {"SLOW_SECONDS"},
    "kernels/gpu/bench/process/timing.py": {"BUSY_SECONDS"},
    "kernels/triton/emission/prices.py": {
        "LAUNCH_SECONDS",
        "PROGRAM_SECONDS",
        "EMPTY_SECONDS",
        "LATENCY_SECONDS",
    },
    "kernels/gpu/bench/judging/baselines.py": {"seconds"},
    "flb_wrapper.py": {"seconds", "judging_seconds"},
}


def durations(tree: ast.Module):
    """The names that get a number of seconds: constants, parameters and fields, arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                yield from zip(names, values, strict=False)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.keyword) and node.arg:
            yield ast.Name(node.arg), node.value
        elif isinstance(node, ast.arguments):
            plain = [*node.posonlyargs, *node.args]
            pairs = [*zip(reversed(plain), reversed(node.defaults), strict=False),
                     *zip(node.kwonlyargs, node.kw_defaults, strict=True)]  # fmt: skip
            yield from ((ast.Name(one.arg), value) for one, value in pairs if value is not None)


def said(text: str) -> set[str]:
    """Which names of seconds get a number of their own; those of a module's own pauses begin with _."""
    found = set()
    if not re.search(r"(?i)(seconds|timeout)\b[^\n]*[=,]", text):
        return found
    for name, value in durations(ast.parse(text)):
        last = getattr(name, "id", getattr(name, "attr", ""))
        number = isinstance(value, ast.Constant) and type(value.value) in (int, float)
        named = last.lower().endswith(("seconds", "timeout"))
        if named and number and value.value > 0 and not last.startswith("_"):
            found.add(last)
    return found


def test_no_limit_is_said_elsewhere():
    paths = {path.relative_to(ROOT).as_posix(): path for path in ROOT.rglob("*.py")}
    del paths["time_limits.py"]
    found = {place: said(path.read_text()) for place, path in paths.items()}
    assert {place: names for place, names in found.items() if names} == MEASURED_FOR


def test_numbers_of_all_kinds_are_seen():
    text = "A_SECONDS, B = 1.0, 2\nclass C:\n    seconds: float = 3.0\n"
    text += "def f(x, timeout=4, *, g_seconds=5):\n    return run(h_timeout=6)\n"
    assert said(text) == {"A_SECONDS", "seconds", "timeout", "g_seconds", "h_timeout"}
    assert said("_TICK_SECONDS = 1.0\nseconds = 0.0\n") == set()


def test_every_limit_is_used_and_explained():
    source = (ROOT / "time_limits.py").read_text()
    used = "\n".join(p.read_text() for p in ROOT.rglob("*.py") if p.name != "time_limits.py")
    names = [name for name in vars(time_limits) if name.endswith("SECONDS")]
    assert len(names) > 30 and all(name in used for name in names)
    assert source.count('"""') // 2 == len(names)  # one tells of two, one of the module
