"""Kernels that tests give as text, with what they begin with in either dialect: imports and decorator."""


def neuronxcc_kernel(text: str) -> str:
    return f"""import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
{text}"""


def nki_kernel(text: str) -> str:
    return f"""import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
{text}"""
