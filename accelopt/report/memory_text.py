"""How full SBUF and PSUM are over a kernel's run, as a line of bars."""

from __future__ import annotations

from accelopt.kernels.nki.source_lines import Sources
from accelopt.sim.timing.occupancy import MemoryUse

BARS = " ▁▂▃▄▅▆▇█"


def memory_text(use: MemoryUse) -> str:
    """A line of bars, and who holds the most at the peak."""
    share = use.peak / use.capacity
    spills = "; what exceeds it is spilled" if share > 1 else ""
    rows = [
        f"{use.memory}: at most {use.peak:,} of {use.capacity:,} bytes a partition "
        f"({share:.0%}){spills}"
    ]
    full = max(use.capacity, use.peak)
    rows.append(
        "  |"
        + "".join(BARS[max(n > 0, round(n / full * (len(BARS) - 1)))] for n in use.over_time)
        + "|"
    )
    name = Sources().name
    rows += [f"  {h.bytes:>10,}  {name(h.tensor, h.source)}  {h.source}" for h in use.holders]
    return "\n".join(rows)
