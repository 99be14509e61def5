"""Every site of every move, on kernels of many styles: the moved kernel computes the same."""

import numpy as np
import pytest
from simulation import SMALL, arguments, arrays, run

from accelopt.kernels.nki.moves.move import Facts, IllegalMove
from accelopt.kernels.nki.moves.propose import prepare
from accelopt.kernels.nki.moves.registry import MOVES, move

SITES_OF_ONE_MOVE = 6


def spread(sites):
    """A few of many sites, from all over the list."""
    step = max(1, -(-len(sites) // SITES_OF_ONE_MOVE))
    return sites[::step]


def moved_sources(source, facts):
    """(move, site, source after) for every move, a few sites each."""
    kernel = prepare(source, facts)
    for name in MOVES:
        for site, make in spread([*move(name).options(kernel, facts)]):
            try:
                yield name, site, make().render()
            except IllegalMove:
                continue


def difference(got, wanted):
    assert [g.shape for g in got] == [w.shape for w in wanted]
    return max(
        float(np.linalg.norm(g.astype(np.float64) - w) / np.linalg.norm(w))
        for g, w in zip(got, wanted)
    )


@pytest.mark.parametrize("name", SMALL)
def test_every_move_keeps_the_result(name):
    path, shapes = SMALL[name]
    source, values = path.read_text(), arrays(shapes)
    if name == "adamw":
        values = [np.abs(value) for value in values]
    facts = Facts(arguments=arguments(source, shapes))
    wanted = run(source, values)
    for move_name, site, changed in moved_sources(source, facts):
        got = run(changed, values)
        assert difference(got, wanted) < 2e-6, f"{move_name} {dict(site.parameters)}:\n{changed}"


@pytest.mark.parametrize("name", ["rmsnorm_matmul", "scale_blocks", "products_ds", "silu"])
def test_moves_combine(name):
    """Three rounds of the most promising changes, one on top of the other."""
    from accelopt.kernels.nki.moves.propose import rewrites

    path, shapes = SMALL[name]
    source, values = path.read_text(), arrays(shapes)
    facts = Facts(arguments=arguments(source, shapes))
    wanted = run(source, values)
    applied = []
    for round_number in range(3):
        changes = rewrites(source, facts)
        if not changes:
            break
        site, source = changes[round_number % len(changes)]
        applied.append(site.text)
        assert difference(run(source, values), wanted) < 2e-6, "\n".join([*applied, source])
    assert len(applied) == 3


def test_renaming_apart_changes_nothing():
    path, shapes = SMALL["softmax_ranges"]
    source, values = path.read_text(), arrays(shapes)
    renamed = prepare(source, Facts(arguments=arguments(source, shapes))).render()
    assert "tile_1" in renamed and "start_1" in renamed
    for got, wanted in zip(run(renamed, values), run(source, values)):
        np.testing.assert_array_equal(got, wanted)
