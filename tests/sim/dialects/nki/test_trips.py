"""How often loops of the device run, as far as the time is concerned. Evidence: none measured; a loop
of 256 rounds was priced as one of two."""

import numpy as np
import pytest
from kernel_lines import writing_of

from accelopt.sim.compute.trips import counted
from accelopt.sim.errors import KernelError
from accelopt.sim.timing import profile


def _count(found, opcode):
    instances = found.run.stream.instances
    return sum(instances[kind].operation.opcode == opcode for kind in found.run.stream.kind)


ROUNDS = writing_of("a, count")("""
def step(tile):
    nisa.activation(dst=tile, op=nl.tanh, data=tile)
tile, rows = nl.load(a), nl.load(count)
stop = nisa.register_alloc()
nisa.register_load(stop, rows)
{loop}
nisa.dma_copy(dst=out, src=tile)
""")


def _rounds(nki_text, loop):
    text = nki_text(ROUNDS.format(loop=loop))
    return text.trace(np.ones((128, 512), np.float32), np.ones((1, 1), np.int32))


class TestLoopsOfTheDevice:
    @pytest.mark.parametrize("count", [0, 1, 2, 256])
    def test_known_bounds_are_the_trips(self, nki_text, count):
        """256 cost what two cost."""
        found = profile(_rounds(nki_text, f"nl.fori_loop(0, {count}, lambda i: step(tile))"))
        assert _count(found, "activation") == count

    def test_trips_that_data_decide_come_from_the_execution(self, nki_text):
        program = _rounds(nki_text, "nl.fori_loop(0, stop, lambda i: step(tile))")
        with pytest.raises(KernelError, match="depends on the inputs"):
            profile(program)
        tile = np.ones((128, 512), np.float32)
        for rows in (0, 3, 100):
            found = profile(counted(program, [tile, np.full((1, 1), rows, np.int32)]))
            assert _count(found, "activation") == rows

    @pytest.mark.parametrize("rounds", [1, 2, 4, 9])
    @pytest.mark.parametrize("first", [0, 1, 3])
    def test_loops_in_loops_have_the_mean_rounded_up(self, nki_text, rounds, first):
        """The inner one runs 0, 1, 2 and 3 times: 1.5 on average. Never less than what is written out."""
        inner = f"lambda i: nl.fori_loop({first}, i, lambda j: step(tile))"
        found = profile(_rounds(nki_text, f"nl.fori_loop(0, {rounds}, {inner})"))
        trips = sum(max(i - first, 0) for i in range(rounds))
        assert _count(found, "activation") == rounds * -(-trips // rounds)
        written = profile(_rounds(nki_text, f"for _ in nl.static_range({trips}): step(tile)"))
        assert found.latency_ms >= written.latency_ms
