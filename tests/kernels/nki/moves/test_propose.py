"""The moves that are proposed first make the benchmark's kernels faster on the simulated core."""

import random

import pytest
from simulation import OWN, PROBLEMS, ROOT, SMALL, arguments, latency_ms

from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Site
from accelopt.kernels.nki.moves.propose import apply, propose, rewrites
from accelopt.kernels.nki.parameters import kernel_arguments

FULL = {
    "silu_M4096_N7168": [(128, 32, 7168)],
    "rmsnorm_matmul_K1024_M4096_N2048": [(32, 128, 1024), (8, 128, 2048)],
    "matmul_K5120_M4096_N12288": [(32, 128, 40, 128), (40, 128, 12288)],
}


def known(name):
    source = (PROBLEMS / f"{name}_0.py").read_text()
    reference = (ROOT / "NKIBench" / "reference" / f"{name}_numpy.py").read_text()
    return source, kernel_arguments(source, reference)


SLOW = pytest.param("matmul_K5120_M4096_N12288", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [*list(FULL)[:2], SLOW])
def test_two_rounds_of_the_first_four_proposals(name):
    """A beam of two over four proposals a kernel, as `make run` does, timing only."""
    source, known_arguments = known(name)
    facts = Facts(arguments=known_arguments)
    baseline = latency_ms(source, FULL[name])
    beam = [(baseline, source)]
    for _ in range(2):
        found = list(beam)
        for _, parent in beam:
            for site in propose(parent, facts, 4, random.Random(0)):
                child = apply(parent, [site], facts)
                found.append((latency_ms(child, FULL[name]), child))
        beam = sorted(found)[:2]
    assert baseline / beam[0][0] >= 1.2


@pytest.mark.parametrize("name", FULL)
def test_shapes_come_from_the_reference(name):
    _, found = known(name)
    assert [argument.shape for argument in found.values()] == FULL[name]
    assert {argument.dtype for argument in found.values()} == {"float32"}


def test_an_unclear_reference_gives_no_shapes():
    source, _ = known("silu_M4096_N7168")
    for reference in ("", "def get_inputs(): return load('x')", "not python"):
        assert kernel_arguments(source, reference) == {}


def test_without_shapes_proposals_are_still_legal():
    source, _ = known("rmsnorm_matmul_K1024_M4096_N2048")
    for site in propose(source, Facts(), 20, random.Random(0)):
        assert apply(source, [site], Facts()) != source


def test_the_profile_decides_what_comes_first():
    path, shapes = SMALL["silu"]
    source = path.read_text()
    known_arguments = arguments(source, shapes)

    def first(**metrics):
        facts = Facts(metrics=metrics, arguments=known_arguments)
        return propose(source, facts, 1, random.Random(0))[0].move

    engines = {"vector_engine_active_time_percent": 0.2}
    hbm, scalar = "dma_active_time_percent", "scalar_engine_active_time_percent"
    assert first(**engines, **{hbm: 0.99, scalar: 0.2}) == "widen"
    assert first(**engines, **{hbm: 0.2, scalar: 0.99}) == "fuse"


def test_sentences_tell_changes_apart_and_do_not_depend_on_the_profile():
    for path, shapes in (SMALL["scale_blocks"], SMALL["softmax_ranges"]):
        source = path.read_text()
        known_arguments = arguments(source, shapes)
        busy = {"vector_engine_active_time_percent": 0.9, "dma_active_time_percent": 0.1}
        plain = {c.site.text: c.source for c in rewrites(source, Facts(arguments=known_arguments))}
        profiled = rewrites(source, Facts(metrics=busy, arguments=known_arguments))
        assert {c.site.text: c.source for c in profiled} == plain
        assert len(plain) == len(profiled)


def test_the_same_seed_proposes_the_same():
    source = (OWN / "products_ds.py").read_text()
    facts = Facts(arguments=arguments(source, SMALL["products_ds"][1]))
    assert propose(source, facts, 9, random.Random(3)) == propose(
        source, facts, 9, random.Random(3)
    )


TRANSPOSED = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(a, b):
    out = nl.ndarray((512, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        for j in nl.affine_range(2):
            acc = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(4):
                at = nl.load_transpose2d(a[i * 128:(i + 1) * 128, k * 128:(k + 1) * 128])
                bt = nl.load(b[k * 128:(k + 1) * 128, j * 512:(j + 1) * 512])
                acc += nl.matmul(at, bt, transpose_x=True)
            nl.store(out[i * 128:(i + 1) * 128, j * 512:(j + 1) * 512], acc)
    return out
"""


def test_a_tile_that_is_transposed_as_it_is_loaded_can_be_kept():
    facts = Facts(arguments=arguments(TRANSPOSED, [(512, 512), (512, 1024)]))
    changes = rewrites(TRANSPOSED, facts)
    assert any("at kept in SBUF" in change.site.text for change in changes)


def test_an_unknown_move_is_named():
    source, known_arguments = known("silu_M4096_N7168")
    with pytest.raises(IllegalMove, match="there is no move 'levitate'"):
        apply(source, [Site("levitate", {}, "")], Facts(arguments=known_arguments))
