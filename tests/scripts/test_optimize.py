"""`accelopt optimize` on one's own kernel: stopped by Ctrl-C, resumed, and what it leaves."""

import signal
import time

from command_line import Begun
from small_problem import benchmark


def test_stopped_and_resumed_it_leaves_kernel_diff_and_recipe(tmp_path):
    folder, out = benchmark(tmp_path / "own"), tmp_path / "run"
    own = [str(folder / "kernels" / "silu.py"), "--reference", str(folder / "reference/silu.py")]
    options = ["--out", out, "--iterations", 2, "--plans", 2, "--samples", 1]
    process = Begun("accelopt", "optimize", *own, *options)
    journal = out / "journal.jsonl"
    deadline = time.monotonic() + 240
    while not (journal.exists() and journal.stat().st_size) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "the same command with --resume continues" in said and "Traceback" not in said

    process = Begun("accelopt", "optimize", *own, *options)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1 and "--resume" in said and "Traceback" not in said

    process = Begun("accelopt", "optimize", *own, *options, "--resume")
    shown, said = process.communicate(timeout=400)
    assert process.returncode == 0 and "simulated trn1" in shown and "1." in shown, said
    best = out / "silu" / "best.py"
    assert str(best) in shown.replace("\n", "") and "def kernel" in best.read_text()
    assert (out / "silu" / "best.diff").read_text().startswith("--- a/silu.py")
    assert "--replay" in (out / "silu" / "reproduce.txt").read_text()
