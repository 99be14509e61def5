import pytest

from accelopt.sim import standin


@pytest.fixture(scope="session", autouse=True)
def neuronxcc() -> None:
    """Kernels import neuronxcc: the simulated one where the Neuron SDK is absent."""
    standin.install()
