"""Kernels that tests give as text, with what they begin with in either dialect: imports and decorator."""

import textwrap
from collections.abc import Callable


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


def function(*lines: str, parameters: str = "a", shape: str = "", dtype: str = "") -> str:
    """A kernel's function of these lines, with an output: like the first parameter, where nothing else is said."""
    first = parameters.partition(",")[0]
    declared = f"out = nl.ndarray({shape or f'{first}.shape'}, dtype={dtype or f'{first}.dtype'}, buffer=nl.shared_hbm)"
    body = "\n    ".join((declared, *lines, "return out"))
    return f"def kernel({parameters}):\n    {body}\n"


def function_of(parameters: str = "a", **output: str) -> Callable[[str], str]:
    """What makes functions of these parameters, with this output, of their body."""
    return lambda body: function(
        *textwrap.dedent(body).strip().splitlines(), parameters=parameters, **output
    )


def neuronxcc_of(parameters: str, **output: str) -> Callable[[str], str]:
    """The same of whole kernels."""
    return lambda body: neuronxcc_kernel(function_of(parameters, **output)(body))


def nki_of(parameters: str, **output: str) -> Callable[[str], str]:
    """The same of whole kernels."""
    return lambda body: nki_kernel(function_of(parameters, **output)(body))


def numpy_reference(result: str, **shapes: object) -> str:
    """A reference that returns this expression of parameters with these shapes, normal numbers in fp32."""
    drawn = (f"np.random.normal(size={shape}).astype(np.float32)" for shape in shapes.values())
    return f"""import numpy as np

def get_inputs():
    return [{", ".join(drawn)}]

def forward({", ".join(shapes)}):
    return {result}
"""
