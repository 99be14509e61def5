"""Kernels in tests are text: the tracer reads their source, as the real one does."""

import itertools
import textwrap

import numpy as np
import pytest
from kernel_heads import function_of

from accelopt.sim import compute, rules, serial
from accelopt.sim.dialects import dialect
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.kernel_loading import load

HEAD = """\
import math
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import neuronxcc.nki.compiler as ncc
from neuronxcc.nki.language import par_dim

"""
_files = itertools.count()


class KernelText:
    """A kernel file made of an NKI header and the given text; its function is `kernel`."""

    head, traced = HEAD, staticmethod(trace_kernel)

    def __init__(self, text):
        self.file = f"kernel_{next(_files)}.py"
        self.module = load(self.head + textwrap.dedent(text), self.file)
        self.kernel = self.module.kernel

    @classmethod
    def writing(cls, body):
        """A kernel of this body, with an output like `a`."""
        return cls.of()(body)

    @classmethod
    def of(cls, parameters="a", **output):
        """What makes kernels of these parameters, with this output, of their body."""
        return lambda body: cls("@nki.jit\n" + function_of(parameters, **output)(body))

    def line_of(self, text):
        """The number of the first line that holds the text."""
        import linecache

        lines = linecache.getlines(self.file)
        return next(n for n, line in enumerate(lines, 1) if text in line)

    def trace(self, *arguments, **options):
        """The verified Program, as another process has it."""
        program = serial.transferred(self.traced(self.kernel, arguments, **options))
        rules.check(program)
        return program

    def run(self, *arguments, order="program", **options):
        """The results as arrays."""
        program = self.trace(*arguments, **options)
        arrays = [a for a in arguments if isinstance(a, np.ndarray) and a.ndim]
        results = compute.execute(program, arrays, order=order)
        return results if program.returns_sequence else results[0]


class NkiText(KernelText):
    """The same of the package `nki`."""

    head = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n"
    traced = staticmethod(dialect.trace_kernel)


@pytest.fixture
def kernel_text():
    return KernelText


@pytest.fixture
def nki_text():
    return NkiText


@pytest.fixture
def random():
    return np.random.default_rng(0)
