"""Kernels of the `nki` package in tests are text, as those of the first dialect are."""

import itertools
import textwrap

import numpy as np
import pytest

from accelopt.sim import compute, rules, serial
from accelopt.sim.dialects.dialect import trace_kernel
from accelopt.sim.kernel_loading import load, specs_of

HEAD = """\
import nki
import nki.isa as nisa
import nki.language as nl

"""
_files = itertools.count()


class NkiText:
    """A kernel file made of the imports and the given text; its function is `kernel`."""

    def __init__(self, text):
        self.file = f"nki_kernel_{next(_files)}.py"
        self.kernel = load(HEAD + textwrap.dedent(text), self.file).kernel

    def trace(self, *arguments, **options):
        """The verified Program, as another process has it."""
        program = serial.transferred(trace_kernel(self.kernel, specs_of(arguments), **options))
        rules.check(program)
        return program

    def run(self, *arguments, **options):
        """The results as arrays."""
        program = self.trace(*arguments, **options)
        arrays = [a for a in arguments if isinstance(a, np.ndarray) and a.ndim]
        results = compute.execute(program, [a.copy() for a in arrays])
        return results if program.returns_sequence else results[0]


@pytest.fixture
def nki_text():
    return NkiText
