"""Everything that is wrong with a kernel, in its own lines, for whoever repairs it."""

import re
from pathlib import Path

from accelopt.evaluation import Evaluation, Status
from accelopt.kernels.nki.faults import faults_call, faults_job

HERE = Path(__file__).resolve().parents[2] / "loop" / "recorded" / "linear_attention"
KERNEL = (HERE / "kernel.py").read_text()


def told(tmp_path, text):
    path = tmp_path / "kernel.py"
    path.write_text(text)
    task = str(HERE / "reference.py")
    return faults_job({"kernel": str(path), "task": task, "target": "trn1"}).text


def test_every_violation_is_told_with_its_line_even_where_tracing_leaves_no_program(tmp_path):
    """A tile that a broken rule leaves behind became an operand, and the fixer read that `Poison` is not
    JSON serializable."""
    broken = (
        KERNEL.replace("i * 128 : (i + 1) * 128", "i * 256 : (i + 1) * 256", 1)
        .replace("v[h, j * 128 : (j + 1) * 128", "v[h, j * 256 : (j + 1) * 256")
        .replace("total[...] = nl.add(total,", "total[...] = nisa.tensor_scalar(total, nl.add,")
    )
    text = told(tmp_path, broken)
    assert "line 14: q_tile = nl.load(" in text and "256 partitions exceed the limit of 128" in text
    assert "line 20: v_tile = nl.load(" in text and text.count("[err_") == 2
    assert "Poison" not in text and "Tracing stopped" not in text and str(tmp_path) not in text


def test_wrong_numbers_say_where_and_how(tmp_path):
    text = told(tmp_path, KERNEL.replace("nl.divide(total,", "nl.divide(nl.multiply(total, 0.5),"))
    assert text.startswith("Output 0 (2, 512, 64), on ordinary inputs:")
    assert "All wrong ones are 0.5 times what is wanted." in text


def test_what_is_right_on_ordinary_inputs_is_said_to_be(tmp_path):
    """Of a variance without its n / (n - 1), 4.8e-5 off where 2e-5 is allowed, it was said to be right."""
    text = told(tmp_path, KERNEL)
    assert float(re.search(r"ordinary inputs: relative L2 error (\S+),", text)[1]) < 1e-6
    assert "Where that is allowed, extreme inputs tell" in text
    slightly = told(
        tmp_path, KERNEL.replace("nl.divide(total,", "nl.divide(nl.multiply(total, 1.00005),")
    )
    assert "relative L2 error 5e-05, no element far off" in slightly
    crashed = Evaluation(status=Status.CRASH, message="gone")
    assert faults_call("k", "t", "trn1", crashed) is None
