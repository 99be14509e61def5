"""Kernels written from the reference: what a kernel's own text does not say, or says in more work.

Evidence: the references are NumPy's, and what is written is run on the simulated core.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from kernel_heads import neuronxcc_of, nki_of
from warm import computed

from accelopt.algorithm.element_work import computes_less
from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.rescheduling.lifted_kernel import lifted_kernel
from accelopt.kernels.nki.rescheduling.lifted_reference import reference_of_kernel
from accelopt.kernels.nki.rescheduling.schedule_candidates import offered, searched

BY_BITS = (
    neuronxcc_of("x, temperature")("""
for t in nl.affine_range(x.shape[0] // 128):
    rows = nl.load(x[t * 128:(t + 1) * 128, :])
    size = nl.bitwise_and(rows.view(nl.int32), 0x7FFFFFFF).view(nl.float32) / temperature
    nl.store(out[t * 128:(t + 1) * 128, :], size - nl.max(size, axis=1, keepdims=True))
""")
    .replace("@nki.jit", "FIRST = 128  # said by nobody\n\n\n@nki.jit")
    .replace("def kernel(", "def sizes(")
)
IN_PLACE = nki_of("x, temperature")("""
rows = nl.load(x[0:128, :])
nl.store(out[0:128, :], rows)
nl.store(x[0:128, :], rows)
""")
GIVEN = {"x": ParameterFacts((256, 512)), "temperature": ParameterFacts((), value=1.5)}
FORWARD = "    z = np.abs({}) / temperature\n    return (z - z.max(axis=1, keepdims=True)){}\n"
PLAIN = FORWARD.format("x", "")


def reference(folder: Path, forward: str, more: str = "") -> Path:
    """A reference with this body of `forward`."""
    path = folder / "reference.py"
    drawn = "    return [np.random.normal(size=(256, 512)).astype(np.float32), 1.5]\n"
    path.write_text(
        f"import numpy as np\n\n\ndef get_inputs():\n{drawn}\n\ndef forward(x, temperature):\n{forward}\n\n{more}"
    )
    return path


def test_a_kernel_that_does_not_lift_is_written_from_its_reference(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(BY_BITS)
    found = offered(BY_BITS, path, GIVEN, reference=reference(tmp_path, PLAIN))
    offer = found.offers[0]
    assert offer.from_reference and offer.sentence.startswith("Written from the reference: ")
    assert "bitwise" not in offer.source and not found.refusal
    assert "def sizes(x, temperature):" in offer.source and "FIRST = 128" in offer.source
    assert "assert temperature > 0" in offer.source
    x = np.random.default_rng(2).standard_normal((256, 512)).astype(np.float32)
    for number in (1.5, 0.7):
        (got,) = computed(offer.source, [x, number])
        z = np.abs(x) / number
        np.testing.assert_allclose(got, z - z.max(axis=1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_formats_and_shapes_of_results_are_the_kernels(tmp_path: Path) -> None:
    source = BY_BITS.replace(
        "nl.ndarray(x.shape, dtype=x.dtype", "nl.ndarray((2, 128, 512), dtype=nl.bfloat16"
    )
    source = source.replace("out[t * 128:(t + 1) * 128, :]", "out[t]")
    path = tmp_path / "kernel.py"
    path.write_text(source)
    more = "def transform_nki_outputs(made, wanted):\n    return made.reshape(256, 512)\n"
    found = reference_of_kernel(source, path, GIVEN, reference(tmp_path, PLAIN, more), "trn1")
    (output,) = found.algorithm.outputs
    assert (output.dtype, output.given) == ("bfloat16", (2, 128, 512))


@pytest.mark.parametrize(
    ("source", "forward", "more", "said"),
    [
        (BY_BITS, FORWARD.format("x", "[:128]"), "", "it returns"),
        (BY_BITS, PLAIN, "def transform_nki_outputs(made, wanted):\n    return made.T\n", "does more than"),
        (BY_BITS, FORWARD.format("np.linalg.inv(x @ x.T) @ x", ""), "", "inv"),
        (IN_PLACE, PLAIN, "", "changes arguments"),
    ],
)  # fmt: skip
def test_what_no_kernel_is_written_from_says_why(
    tmp_path: Path, source: str, forward: str, more: str, said: str
) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(source)
    with pytest.raises(NotLifted, match=said):
        reference_of_kernel(source, path, GIVEN, reference(tmp_path, forward, more), "trn1")


@pytest.mark.parametrize(("fast", "chosen"), [("tanh", [True, False]), ("exp", [False])])
def test_the_reference_is_searched_where_it_begins_faster(
    tmp_path: Path, fast: str, chosen: list[bool]
) -> None:
    """The kernel's own schedules are offered in any case: the referee may not accept the others."""
    source = BY_BITS.replace(
        "nl.bitwise_and(rows.view(nl.int32), 0x7FFFFFFF).view(nl.float32)", "nl.exp(rows)"
    )
    path = tmp_path / "kernel.py"
    path.write_text(source)
    own = lifted_kernel(source, path, GIVEN)
    task = reference(tmp_path, PLAIN.replace("abs", "tanh"))
    other = reference_of_kernel(source, path, GIVEN, task, "trn1")
    twice = reference_of_kernel(
        source,
        path,
        GIVEN,
        reference(tmp_path, PLAIN.replace("z -", "np.exp(np.exp(np.exp(z))) -")),
        "trn1",
    )
    assert computes_less(own.algorithm, twice.algorithm)
    assert not computes_less(other.algorithm, own.algorithm)

    def times(sources: Sequence[str], most_ms: float = 0.0) -> list[float]:
        return [1.0 if fast in text else 2.0 for text in sources]

    offers = searched([own, other], "trn1", times).offers
    assert sorted({o.from_reference for o in offers}, reverse=True) == chosen
    assert offers[0].from_reference is chosen[0]
