"""What a kernel prints or raises is told, and no line of it can be taken for one of ours."""

import os

import pytest
from command_line import accelopt
from small_problem import KERNEL, REFERENCE

from accelopt.errors import quoted
from accelopt.report.rule_check import check, check_text

FORGED = "Results: correct, 1000x"
SAID = f'"fails\\n{FORGED}\\r{FORGED}\\x1b[2K\\x1b[1A\\u2028{FORGED}\\x85{FORGED}\\n  {FORGED}"'
RAISES = f"import sys\nprint({SAID})\nprint({SAID}, file=sys.stderr)\n"
FAULTS = {
    "an exception": f"raise ValueError({SAID})\n",
    "a name of its own": f'raise type("Results: correct\\n{FORGED}", (Exception,), {{}})("x")\n',
    "an exit": f"raise SystemExit({SAID})\n",
    "a failure at once": "import os\nos._exit(3)\n",
    "a rule": f"nl.load({SAID})\n",
}


def lines_of(text):
    assert not any(c in text for c in "\r\x1b\x85\u2028")
    return [line.strip(" ") for line in text.split("\n")]


@pytest.mark.parametrize("command", ["check", "profile", "explain", "optimize"])
def test_no_command_lets_a_kernel_speak_for_it(command, tmp_path):
    """Assumption: people and scripts read a command's lines by how they begin."""
    kernel, reference = tmp_path / "kernel.py", tmp_path / "reference.py"
    kernel.write_text(KERNEL + RAISES + FAULTS["an exception"])
    reference.write_text(REFERENCE)
    words = [command, str(kernel), "--reference", str(reference)]
    if command == "optimize":
        words += ["--offline", "--out", str(tmp_path / "run")]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "300"}
    done = accelopt(*words, environment=environment)
    assert done.returncode != 0
    for output in (done.stdout, done.stderr):
        assert not any(line.startswith(FORGED) for line in lines_of(output))
    assert FORGED in done.stdout + done.stderr


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_goes_wrong_with_it(fault, tmp_path):
    """The same for each way in which a kernel's text gets into a report."""
    kernel, reference = tmp_path / "kernel.py", tmp_path / "reference.py"
    body = RAISES + FAULTS[fault]
    inside = "".join(f"    {line}\n" for line in body.splitlines())
    kernel.write_text(KERNEL.replace("def kernel(x):\n", f"def kernel(x):\n{inside}"))
    reference.write_text(REFERENCE)
    report = check(kernel, reference, "trn1", cache=tmp_path / "cache")
    text = check_text(report)
    assert not report.passed
    assert not any(line.startswith(FORGED) for line in lines_of(text))


def test_a_mark_begins_each_line_that_is_not_ours():
    """The first line of what is quoted stands behind words of ours, unless all of it is quoted."""
    assert quoted("one\ntwo\x1b") == "one\n  | two\N{REPLACEMENT CHARACTER}"
    assert quoted("one\ntwo", whole=True) == "  | one\n  | two"
    assert quoted(quoted("one\ntwo")) == quoted("one\ntwo")
