"""A refusal names the definition, the line of the author's statement, and the true reason."""

from pathlib import Path

import pytest
from kernel_heads import neuronxcc_kernel

from accelopt.algorithm.notation import definition_text
from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.nests.nest import Nest, NotNested, Part, Stage, default_nest
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted, lifted_kernel

SOFTMAX = neuronxcc_kernel("""def attend(q, k, v):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    scores = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(2):
        part = nisa.nc_matmul(nl.load(q), nl.load(k[:, nl.ds(j * 128, 128)]))
        scores[:, nl.ds(j * 128, 128)] = nl.copy(part)
    most = nl.max(scores, axis=1, keepdims=True)
    e = nl.exp(scores - most)
    total = nl.sum(e, axis=1, keepdims=True)
    squares = nl.sum(nl.square(e), axis=1, keepdims=True)
    acc = nl.zeros((128, 64), dtype=nl.float32, buffer=nl.psum)
    for j in nl.affine_range(2):
        turned = nl.copy(nisa.nc_transpose(e[:, nl.ds(j * 128, 128)]))
        acc[...] += nisa.nc_matmul(turned, nl.load(v[nl.ds(j * 128, 128), :]))
    nl.store(out, acc / total * squares)
    return out
""")


@pytest.fixture(scope="module")
def lifted(tmp_path_factory: pytest.TempPathFactory) -> Lifted:
    """What the kernel computes."""
    path = tmp_path_factory.mktemp("refusals") / "kernel.py"
    path.write_text(SOFTMAX)
    shapes = {"q": (64, 128), "k": (64, 256), "v": (256, 64)}
    return lifted_kernel(SOFTMAX, path, {name: ParameterFacts(s) for name, s in shapes.items()})


def test_definitions_have_the_lines_that_compute_them(lifted: Lifted) -> None:
    """Evidence: the lines of the kernel above: which statement multiplies, sums or stores."""
    text = SOFTMAX.splitlines()
    said = {name: text[line.line - 1].strip() for name, line in lifted.lines.items()}
    assert said["largest"].startswith("most = nl.max(")
    assert said["product"].startswith("part = nisa.nc_matmul(nl.load(q)")
    assert said["product2"].startswith("acc[...] += nisa.nc_matmul(")
    for name in ("total", "total2"):
        squared = "**2" in definition_text(lifted.algorithm.definition(name))
        assert said[name].startswith("squares = " if squared else "total = ")
    assert said["out"].startswith("nl.store(")


def test_a_refusal_to_write_has_definition_line_and_reason(lifted: Lifted) -> None:
    """Evidence: keys lie on partitions where a maximum over all of them is asked for."""
    plain = default_nest(lifted.algorithm)
    stages = tuple(
        Stage(members=s.members, partition=(Part(axis="nowhere", size=2),))
        if s.members == ("largest",)
        else s
        for s in plain.stages
    )
    with pytest.raises(NotNested) as refusal:
        lifted.lowered(Nest(stages=stages))
    said = lifted.located(str(refusal.value))
    line = next(n for n, text in enumerate(SOFTMAX.splitlines(), 1) if "nl.max(" in text)
    assert f"kernel.py:{line}: largest" in said and "nowhere" in said and "max_" in said


def test_a_reason_without_a_definition_stays_as_it_is(lifted: Lifted) -> None:
    """Evidence: what is not known is not invented."""
    assert lifted.located("nothing of it is known") == "nothing of it is known"


SCATTER = neuronxcc_kernel("""def write_rows(cache, rows, slots):
    out = nl.ndarray(cache.shape, dtype=cache.dtype, buffer=nl.shared_hbm)
    for s in nl.sequential_range(cache.shape[0] // 128):
        nl.store(out[nl.ds(s * 128, 128), :], nl.load(cache[nl.ds(s * 128, 128), :]))
    for t in nl.sequential_range(rows.shape[0] // 128):
        at = nl.load(slots[nl.ds(t * 128, 128), :])
        i_p, i_f = nl.arange(128)[:, None], nl.arange(256)[None, :]
        before = nl.load(out[at[i_p, 0], i_f])
        nl.store(out[at[i_p, 0], i_f], nl.add(before, nl.load(rows[nl.ds(t * 128, 128), :])))
    return out
""")


def test_rows_that_are_put_and_read_again_are_refused_at_their_line(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(SCATTER)
    shapes = {"cache": (512, 256), "rows": (256, 256), "slots": (256, 1)}
    given = {
        n: ParameterFacts(s, "int32" if n == "slots" else "float32") for n, s in shapes.items()
    }
    with pytest.raises(
        NotLifted, match=r":15: what it writes at indices that are only known at run time is read"
    ):
        lifted_kernel(SCATTER, path, given)
