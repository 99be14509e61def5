import sys
from pathlib import Path

import pytest

from accelopt.sim import standin

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def neuronxcc():
    """Kernels import neuronxcc: the simulated one where the Neuron SDK is absent."""
    standin.install()
