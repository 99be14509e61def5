"""Moves on kernels of the `nki` package: what comes out is in that dialect, and computes the same."""

import re

import numpy as np
from one_road import execute

from accelopt.kernels.nki.moves.move import Facts
from accelopt.kernels.nki.parameters import ParameterFacts
from accelopt.kernels.nki.rewriting import rewrites_in_dialect
from accelopt.sim.dialects.dialect import dialect_of_source, trace_kernel
from accelopt.sim.kernel_text import load, specs_of

SOURCE = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, factor):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(x.shape[0] // 128):
        for j in range(x.shape[1] // 512):
            tile = nl.load(x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
            half = nl.multiply(tile, factor)
            result = nl.add(half, 1.0)
            nl.store(out[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], result)
    return out
"""


def test_moves_write_in_the_dialect_they_were_given():
    x = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)
    known = {"x": ParameterFacts(x.shape), "factor": ParameterFacts(())}
    actions = rewrites_in_dialect(SOURCE, Facts(arguments=known), "trn2")
    assert len(actions) > 2
    for action in actions:
        assert dialect_of_source(action.source) == "nki"
        program = trace_kernel(load(action.source, "moved").kernel, [*specs_of([x]), 0.5])
        [found] = execute(program, [x.copy()])
        np.testing.assert_allclose(found, x * 0.5 + 1, rtol=1e-6)


def test_sentences_of_moves_name_the_lines_of_the_kernel_that_was_asked_about():
    source = SOURCE.replace(
        "            half = nl.multiply(tile, factor)\n",
        "            half = nl.ndarray(\n                tile.shape, dtype=tile.dtype, buffer=nl.sbuf\n"
        "            )\n            nisa.tensor_scalar(\n                dst=half,\n                data=tile,\n"
        "                op0=nl.multiply,\n                operand0=factor,\n            )\n",
    )
    known = {"x": ParameterFacts((256, 1024)), "factor": ParameterFacts(())}
    actions = rewrites_in_dialect(source, Facts(arguments=known), "trn2")
    lines = source.splitlines()
    named = [
        (int(number), what)
        for action in actions
        for what, number in re.findall(r"nl\.(\w+) in line (\d+)", action.sentence)
    ]
    assert {what for _, what in named} >= {"add"}
    assert all(f"nl.{what}(" in lines[number - 1] for number, what in named)
