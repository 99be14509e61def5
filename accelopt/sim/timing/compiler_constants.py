"""The numbers by which the emulated compiler decides; the same for every generation.

Units, sources and status as in `accelopt.hardware`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from accelopt.hardware.neuroncore import Sourced, assumed, documented, fitted, measured


@dataclass(frozen=True)
class CompilerBounds(Sourced):
    """How far the Neuron compiler looks, and from where on it does something else."""

    merge_window_bytes: float = fitted(
        1200 * 1024,
        "B a partition",
        "NKIBench: what may be defined between two occurrences of work that is done once",
    )
    load_window_bytes: float = fitted(
        256 * 1024,
        "B a partition",
        "NKIBench: the same between two loads; unlimited, matmul and transpose_matmul read too "
        "little",
    )
    merge_over_sequential: bool = fitted(
        True, "yes or no", "NKIBench: inside of sequential loops the two windows do not apply"
    )
    tiny_elements: int = assumed(
        32,
        "elements a partition",
        "widest instruction that counts as tiny: half of the 64 cycles that one takes at least",
    )
    widest_elements: int = documented(
        512,
        "elements a partition",
        "most results of a wide instruction that tiny ones become: what a PSUM bank holds in fp32; "
        "conv1d s04's sums become one, its products, three times as many, do not",
    )
    kept_load_bytes: float = assumed(
        inf,
        "B a partition",
        "most that a load may bring between two wants of the same part of it for the second to be "
        "dropped; NKIBench asks for no such limit beside the windows",
    )
    kept_result_bytes: float = assumed(inf, "B a partition", "the same of what is computed")
    reload_horizon: int = fitted(
        100,
        "instructions",
        "NKIBench: how far the choice of what leaves SBUF looks ahead. mamba spills one of two "
        "partial sums (from 95), lora nearly all of them (up to 256); what gqa and bmm_softmax "
        "move differs by 1% over that range",
    )
    repeat_share: float = fitted(
        0.85,
        "part of SBUF",
        "NKIBench: a loaded array that takes more is loaded anew for every pass over it, when not "
        "everything fits. matmul reads its right-hand side 32 times, gqa keeps 128 KiB of v",
    )
    own_bytes: int = assumed(
        0,
        "B a partition",
        "of SBUF that the compiler wants beside what is reserved, before it spills",
    )
    load_buffers: int = fitted(
        2,
        "times what is live",
        "NKIBench: buffers of a tile that DMA loads; silu's loads are double-buffered, no more",
    )
    load_buffer_bytes: int = fitted(
        8 * 1024,
        "B a partition",
        "NKIBench: as many buffers of loaded tiles as this holds, when that is more",
    )
    computed_buffers: int = fitted(4, "times what is live", "NKIBench: buffers of a computed tile")
    transposes_after_loading: bool = documented(
        False, "1", "perf guide, opt 10: transposing while loading moves element by element"
    )
    makes_results_apart: bool = assumed(
        False,
        "1",
        "whether an activation that also sums is two, each made from the loads on: nothing was measured",
    )
    descriptors: str = documented(
        "static",
        "a ring",
        "who makes a DMA's descriptors where the kernel does not say; nki-dge.rst has static ones for "
        "what is known before the run",
    )
    rewrites: bool = documented(
        True,
        "1",
        "whether the compiler merges repeated work, joins and widens loops and copies out of PSUM, and "
        "how many buffers a tile has; since NKI 0.3 loops stand where the author wrote them, and tiles "
        "have what SBUF holds",
    )
    whole_rounds: int = fitted(
        1,
        "rounds",
        "NKIBench: rounds of a loop in multiples of this hide the latency of their transfers; here "
        "all do, adamw's 86 as well",
    )
    lookahead: tuple[int, ...] = fitted(
        (16, 5, 5, 8, 64, 1),
        "instructions",
        "gqa, adamw and add_rmsnorm_matmul (NKIBench): how far the queues of tensor, vector, "
        "scalar, gpsimd, DMA and sync look ahead; for vector and scalar 4 is too few for adamw (+15%), "
        "8 too many for gqa (-10%)",
    )


COMPILER_BOUNDS = CompilerBounds()

NEWER_BOUNDS = COMPILER_BOUNDS.changed(
    load_buffer_bytes=fitted(
        32 * 1024,
        "B a partition",
        "silu_v3_s7 (trn2_kernels.csv): rows of 4 KiB keep the DMA engines busy for 98%",
    ),
    kept_load_bytes=measured(
        128 * 1024,
        "B a partition",
        "the MLPs of trn2_public.csv keep 128 KiB of weights and load 256 KiB again for each row of "
        "tiles",
    ),
    kept_result_bytes=measured(
        0,
        "B a partition",
        "mamba_v3 (trn2_kernels.csv) repeats a product that mamba_v4 writes down outside of the "
        "loop over states, and takes 15% longer",
    ),
    transposes_after_loading=measured(
        True,
        "1",
        "bmm_v2_d2_loadtranspose (trn2_kernels.csv) counts the instructions of bmm_v2 and takes "
        "its time",
    ),
    makes_results_apart=measured(
        True, "1", "gqa_full_v7b (trn2_kernels.csv) counts products, PSUM reads and loads of both"
    ),
    whole_rounds=fitted(
        16, "rounds", "adamw and silu (trn2_kernels.csv): see transfers_between_rounds.py"
    ),
)

NKI_BOUNDS = COMPILER_BOUNDS.changed(
    rewrites=measured(
        False,
        "1",
        "the profiles of 82 blocked products (trn2_public.csv) count each load of the text",
    ),
    kept_load_bytes=measured(
        96 * 1024,
        "B a partition",
        "most that all loads may bring after one for the same one to be dropped, where each fills a "
        "tile: chipboost's start, n_outer and qwen (trn2_public.csv) have the times of one load for "
        "three uses, over 72 and 80 KiB, and not for the fourth, over 104 and 112; the profile of a "
        "product tiled by 128 x 512 counts each of the 512 loads of one operand twice for four uses, "
        "so one for the first three (72 KiB), or for two",
    ),
    descriptors=measured(
        "software",
        "a ring",
        "blocked products of bf16 and copies of 256 B rows (trn2_public.csv) take 0.65 us a transfer, "
        "one after the other, where dma_compute, which is static, takes half",
    ),
    own_bytes=measured(
        1024,
        "B a partition",
        "154 settings of a blocked product with up to 206 KiB of live tiles do not spill, 75 from "
        "208 KiB on do (trn2_public.csv and others)",
    ),
)

COMPILERS: Mapping[str, CompilerBounds] = {
    "2.21": COMPILER_BOUNDS,
    "2.26": NEWER_BOUNDS,
    "0.6": NKI_BOUNDS,
}
"""By version, as `hardware.front_ends` has them. For `neuronxcc.nki` the SDK: 2.21 is the compiler of
NKIBench's published measurements on trn1, 2.26 that of the kernels of that package measured on trn2. For
`nki` its own version. What differs is only what figures show; all other numbers are the oldest one's."""


def default_compiler(target: str, dialect: str) -> str:
    """The version, in `COMPILERS`, whose kernels of a dialect were measured on a generation; trn3 has
    trn2's."""
    if dialect == "nki":
        return "0.6"
    return "2.21" if target == "trn1" else "2.26"
