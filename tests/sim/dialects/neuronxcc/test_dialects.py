"""Which dialect a kernel is written in, both in one process, and what mixing them is told."""

import numpy as np
import pytest
from kernel_heads import neuronxcc_of, nki_of
from one_road import execute

from accelopt.sim import rules
from accelopt.sim.dialects.dialect import (
    dialect_of,
    dialect_of_source,
    imported_dialect,
    trace_kernel,
    wrong_dialect,
)
from accelopt.sim.errors import KernelError
from accelopt.sim.kernel_loading import load

OLD = neuronxcc_of("a")("""
nl.store(out, nl.exp(nl.load(a)))
""")
NEW = nki_of("a")("""
tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
nisa.dma_copy(dst=tile, src=a)
nisa.activation(dst=tile, op=nl.exp, data=tile)
nisa.dma_copy(dst=out, src=tile)
""")
A = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)


def test_both_dialects_run_in_one_process():
    for text, dialect, target in ((OLD, "neuronxcc", "trn1"), (NEW, "nki", "trn2")):
        kernel = load(text, f"{dialect}.py").kernel
        assert dialect_of(kernel) == dialect == dialect_of_source(text)
        program = trace_kernel(kernel, [A])
        rules.check(program)
        assert program.target == target
        (result,) = execute(program, [A])
        np.testing.assert_allclose(result, np.exp(A), rtol=1e-6)


def test_an_undecorated_kernel_is_told_by_the_modules_it_uses():
    for text, dialect in ((OLD, "neuronxcc"), (NEW, "nki")):
        kernel = load(text.replace("@nki.jit\n", ""), f"plain_{dialect}.py").kernel
        assert dialect_of(kernel) == dialect


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("tile = ol.exp(tile)", 13),
        ("import neuronxcc.nki.language as inner; inner.exp(tile)", 13),
    ],
)
def test_a_kernel_that_mixes_the_dialects_is_told_so_in_one_sentence(line, told):
    """Migration guide, 0.3 to 0.4: `neuronxcc.nki.*` inside kernels is a compilation error."""
    text = NEW.replace("import nki\n", "import nki\nimport neuronxcc.nki.language as ol\n")
    text = text.replace("    nisa.dma_copy(dst=out", f"    {line}\n    nisa.dma_copy(dst=out")
    kernel = load(text, "mixed.py").kernel
    with pytest.raises(KernelError, match="mixes the dialects") as refused:
        trace_kernel(kernel, [A])
    assert refused.value.source.file == "mixed.py"
    assert "accelopt translate" in refused.value.mend
    assert refused.value.source.line == told


def test_a_file_may_hold_kernels_of_both_dialects():
    """As files do that are being migrated; annotations of the other `typing` do not count."""
    text = NEW + "\nimport neuronxcc.nki as old_nki\nimport neuronxcc.nki.language as old_nl\n"
    text += (
        OLD.split("language as nl\n")[1]
        .replace("nki.jit", "old_nki.jit")
        .replace("nl.", "old_nl.")
        .replace("def kernel", "def other")
    )
    module = load(text, "both.py")
    assert dialect_of(module.kernel) == "nki"
    assert dialect_of(module.other) == "neuronxcc"


def test_a_text_in_another_dialect_than_asked_for_is_told_by_line_which_and_what_is_wanted():
    assert imported_dialect("import numpy as np\n") is None and imported_dialect("def (") is None
    assert not wrong_dialect(NEW, NEW) and not wrong_dialect("x = 1", NEW)
    said = wrong_dialect(OLD, NEW)
    assert said.startswith("line 1 imports neuronxcc.nki (Neuron SDK 2.21 to 2.29)")
    assert "nisa.activation(dst=y" in said and said.count(". ") == 0
    assert "y = nisa.activation(" in wrong_dialect("from nki import isa as nisa", OLD)


def test_files_of_equal_text_keep_their_own_names():
    text = OLD.replace("    nl.store(", "    t: typing.tensor[128, 64] = nl.load(a)\n    nl.store(")
    text = text.replace(
        "import neuronxcc.nki as nki",
        "import neuronxcc.nki as nki\nimport neuronxcc.nki.typing as typing",
    )
    for file in ("first.py", "second.py"):
        program = trace_kernel(load(text, file).kernel, [A])
        assert {node.source.file for _, node in program.walk()} == {file}


PRODUCTS = {
    "neuronxcc": neuronxcc_of("a", shape="(64, 64)", dtype="nl.float32")("""
t, u = nl.load(a, dtype=nl.{}), nl.load(a, dtype=nl.{})
nl.store(out, nisa.nc_matmul(t, u))
"""),
    "nki": nki_of("a", shape="(64, 64)", dtype="nl.float32")("""
product = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
nisa.nc_matmul(product, nl.load(a, dtype=nl.{}), nl.load(a, dtype=nl.{}))
nl.store(out, nl.copy(product))
"""),
}


@pytest.mark.parametrize("dialect", PRODUCTS)
def test_tfloat32_is_not_stationary_on_trn2(dialect):
    """Issue 36, point 6; no page of the documentation was at hand, so trn2 alone is held to it."""
    for stationary, moving in (("float32", "tfloat32"), ("float32", "float32")):
        kernel = load(PRODUCTS[dialect].format(stationary, moving), "product.py").kernel
        trace_kernel(kernel, [A], target="trn2")
    kernel = load(PRODUCTS[dialect].format("tfloat32", "tfloat32"), "product.py").kernel
    with pytest.raises(KernelError, match="'stationary' of nc_matmul on trn2 is tfloat32"):
        trace_kernel(kernel, [A], target="trn2")
    trace_kernel(kernel, [A], target="trn1")


@pytest.mark.parametrize("text", [OLD, NEW], ids=["neuronxcc", "nki"])
@pytest.mark.parametrize("shape", [(0, 64), (128, 0), (0,)])
def test_an_argument_without_elements_is_told_as_one(text, shape):
    """Assumption: no instruction reads or writes nothing, so that there is nothing to compile."""
    with pytest.raises(KernelError, match=r"the argument 'a' of shape .* has no elements"):
        trace_kernel(load(text, "empty.py").kernel, [np.zeros(shape, np.float32)])
