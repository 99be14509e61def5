"""What reading the program in one screen costs."""

import subprocess
import sys

MOST = 90  # of our modules: the budget of the project's layout


def test_the_loop_loads_no_language_device_or_sandbox():
    """Measured before: 227 modules, most of them the simulator's, for a few names."""
    code = "import sys, accelopt.loop; print(*[m for m in sys.modules if m.startswith('accelopt')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    rooms = ("accelopt.sim", "accelopt.kernels.nki", "accelopt.kernels.gpu.bench.judging")
    assert [name for name in loaded if name.startswith((*rooms, "accelopt.sandbox"))] == []
    assert "accelopt.loop" in loaded and len(loaded) <= MOST
