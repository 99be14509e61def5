"""What can be done to a kernel, by canonical name: one table for all kernel languages.

A method of a language is one line here: the resources that it relieves when it succeeds, and the class
or function that makes it. Strategies read names and resources. Methods of NKI are primitives of nests.

Resources of a NeuronCore: dma, tensor, vector, scalar, gpsimd; of a GPU: gmem (HBM and caches),
compute, sfu (special functions), control; of both: overlap (nothing waits for anything).
"""

from __future__ import annotations

from importlib import import_module
from inspect import getdoc
from typing import NamedTuple


class Method(NamedTuple):
    """A method: its language, the resources it touches, and where it is made ("module:attribute").

    `by_model` says in a sentence what a model may do of the kind to a kernel, where no rule does: to one
    in CUDA, or to one in NKI in the way of a primitive.
    """

    language: str
    touches: tuple[str, ...]
    place: str
    by_model: str = ""

    @property
    def of_schedules(self) -> bool:
        """Whether it writes the whole kernel anew; a model can do all others to a kernel's text."""
        return self.place == SCHEDULES


SCHEDULES = "accelopt.kernels.nki.actions.priced_nests:Tuning"


def _cuda(place: str, *touches: str) -> Method:
    return Method("cuda", touches, f"accelopt.kernels.cuda.moves:{place}")


def _by_model(language: str, sentence: str, *touches: str) -> Method:
    return Method(language, touches, "", sentence)


METHODS = {
    "schedule": Method(
        "nki", ("dma", "tensor", "vector", "scalar", "gpsimd", "overlap"), SCHEDULES
    ),
    "partition": _by_model(
        "nki",
        "Lay another axis, or several joined, on the 128 partitions.",
        *("dma", "tensor", "vector", "scalar", "overlap"),
    ),
    "tile": _by_model(
        "nki",
        "Run along an axis part by part, in a loop outside of what lies on partitions.",
        *("dma", "tensor", "overlap"),
    ),
    "split": _by_model(
        "nki",
        "Cut an axis in two, so that a part of it lies on partitions and another in a tile or loop.",
        *("dma", "tensor", "overlap"),
    ),
    "columns": _by_model(
        "nki",
        "Let one instruction take more elements a partition, or fewer.",
        *("dma", "vector", "scalar", "overlap"),
    ),
    "at": _by_model(
        "nki",
        "Compute a value in the loop that reads it, so that it stays on the chip between the two.",
        *("dma", "overlap"),
    ),
    "apart": _by_model(
        "nki", "Compute a value in a loop of its own, before those that read it.", "overlap"
    ),
    "inline": _by_model(
        "nki", "Compute a value again where it is read in place of storing it.", "dma", "overlap"
    ),
    "append": _by_model(
        "nki",
        "Compute a sum as one more column of a product that sums over the same.",
        "vector",
        "tensor",
    ),
    "accumulate": _by_model(
        "nki",
        "Add products up in PSUM in place of evacuating each.",
        *("vector", "scalar", "overlap"),
    ),
    "diagonal": _by_model(
        "nki",
        "Take scaled operands that are added as products with diagonal matrices, added up in PSUM.",
        *("vector", "scalar"),
    ),
    "sum": _by_model(
        "nki",
        "Take a sum over rows along the free axis of what is transposed once, in place of a product with ones.",
        *("tensor", "dma"),
    ),
    "repeat": _by_model(
        "nki",
        "Compute a value again for readers that combine it along other axes, in place of storing it.",
        *("dma", "overlap"),
    ),
    "lay": _by_model(
        "nki",
        "Lay another axis of one value on the partitions within its loop, so that what sums over that axis "
        "next takes it as it lies.",
        *("tensor", "scalar", "overlap"),
    ),
    "skip": _by_model(
        "nki",
        "Leave out the blocks that a mask empties, and the mask of those that it leaves whole.",
        *("tensor", "vector", "scalar", "gpsimd"),
    ),
    "hold": _by_model(
        "nki",
        "Keep all of what one loop nest computes in SBUF for later ones, which read it from HBM.",
        *("dma", "overlap"),
    ),
    "cores": _by_model(
        "nki",
        "Compute the halves of an axis on the two cores of a logical one, which is launched on both.",
        *("dma", "vector", "tensor", "scalar", "gpsimd"),
    ),
    "descriptors": _by_model(
        "nki",
        "Have the descriptors of a loop nest's DMAs made before the run.",
        *("dma", "overlap"),
    ),
    "bring": _by_model(
        "nki",
        "Bring a large tile in parts, so that work on the first begins before the last is there.",
        "overlap",
    ),
    "spread": _by_model(
        "nki",
        "Bring a row that all partitions read alike to one of them, and spread it by the Tensor engine.",
        *("dma", "vector", "tensor"),
    ),
    "turn": _by_model(
        "nki",
        "Bring an array that lies along what is on partitions as it lies, and transpose it by the Tensor engine.",
        *("dma", "tensor"),
    ),
    "share": _by_model("nki", "Compute once what a sum and its reader share.", "dma", "vector"),
    "overlap": _by_model(
        "nki", "Let rounds of a loop begin before those before have ended.", "overlap"
    ),
    "orient": _by_model(
        "nki",
        "Bring the summed axis of a product's operand onto partitions another way: loaded or computed "
        "that way round, or transposed by the Tensor engine.",
        *("tensor", "scalar", "dma"),
    ),
    "contract": _by_model(
        "nki", "Lay several of the axes that a product sums over on partitions, joined.", "tensor"
    ),
    "keep": _by_model(
        "nki", "Keep in SBUF what is loaded anew, for all iterations that read it.", "dma"
    ),
    "engine": _by_model(
        "nki",
        "Give an instruction to another engine that can do it.",
        *("vector", "scalar", "gpsimd", "overlap"),
    ),
    "beside": _by_model(
        "nki",
        "Have one of two tiles that the Vector engine takes in PSUM, written there or copied, where it is "
        "read at once with one in SBUF (trn1).",
        "vector",
    ),
    "change_block_sizes": Method(
        "triton",
        ("compute", "gmem", "overlap"),
        "accelopt.kernels.triton.configurations.launch_configurations:configurations",
        "Give the blocks another number of threads, and the grid as many blocks as cover the same work.",
    ),
    "switch_to_mma_or_wgmma": _by_model(
        "triton", "Multiply tiles by the tensor cores, in the format they are stored in.", "compute"
    ),
    "softmax_math_fusion": _by_model(
        "triton",
        "Raise two to a power in the place of e, with the change of base folded into a scale.",
        "sfu",
    ),
    "vectorize_global_loads": _by_model(
        "cuda", "Let each thread load and store 16 neighbouring bytes at once.", "gmem"
    ),
    "cache_policy_cg": _by_model(
        "cuda", "Read and write past the caches what is touched once.", "gmem"
    ),
    "pad_tail_and_mask": _by_model(
        "triton",
        "Take the masks out of the main loop; only its last steps need them.",
        "gmem",
        "control",
    ),
    "tighten_loop_bound": _by_model(
        "triton",
        "End a loop at the last place that any row of the tile needs.",
        "compute",
        "gmem",
        "control",
    ),
    "read_row_once": _by_model(
        "cuda", "Keep a row's elements in registers between the loops that read them.", "gmem"
    ),
    "pack_gqa_heads": _by_model(
        "triton",
        "Let each program compute all query heads that read the same keys.",
        "gmem",
    ),
    "prefetch_addresses": _by_model(
        "triton",
        "Look up where a step's loads are one step before.",
        "overlap",
    ),
    "split_k": _by_model(
        "triton",
        "Share the loop of a program among several, and join what they give, where there are too few.",
        "overlap",
        "gmem",
    ),
    "batch_launches": _by_model(
        "triton",
        "Launch a kernel once for all steps of the host's loop.",
        "overlap",
    ),
    "drop_synchronisation": _by_model(
        "triton",
        "Leave out what makes the host wait for the device.",
        "overlap",
    ),
    "longest_first": _by_model(
        "triton",
        "Start the programs with the most work first.",
        "overlap",
    ),
    "write_anew": Method(
        "triton",
        ("compute", "gmem", "sfu", "overlap"),
        "accelopt.kernels.triton.emission.solutions:candidates",
    ),
    "take_compiled_reference": Method(
        "triton", ("compute", "gmem", "overlap"), "accelopt.kernels.triton.inductor:solution_source"
    ),
    "avoid_atomics_reduce": _by_model(
        "cuda",
        "Reduce within a warp by shuffles and within a block in shared memory before any atomic.",
        "gmem",
        "overlap",
    ),
    "tile_in_shared_memory": _by_model(
        "cuda",
        "Let a block share tiles of both operands of a product, and a thread keep many sums in registers.",
        "compute",
        "gmem",
    ),
    "transpose_in_shared_memory": _by_model(
        "cuda",
        "Transpose tiles in shared memory, so that both reads and writes touch neighbours.",
        "gmem",
    ),
    "row_per_warp": _by_model(
        "cuda",
        "Let a warp or a block walk along a row in the place of one thread.",
        "gmem",
        "overlap",
    ),
    "grid_stride_loop": _by_model(
        "cuda",
        "Start only as many blocks as run at once and let them loop over the work.",
        "overlap",
        "gmem",
    ),
    "launch_bounds": _cuda("launch_bounds", "overlap", "compute"),
    "read_only_pointers": _cuda("read_only_pointers", "gmem", "overlap"),
    "unroll_loops": _cuda("unrolled_loops", "overlap", "compute"),
}


def methods_of(language: str) -> dict[str, Method]:
    """The methods of one language, in the order in which they are looked for."""
    return {
        name: method
        for name, method in METHODS.items()
        if method.language == language
        or ((method.language, language) == ("triton", "cuda") and method.by_model)
    }


def methods_that_touch(language: str, resource: str) -> tuple[str, ...]:
    """The names of the methods of one language that relieve `resource`."""
    return tuple(name for name, m in methods_of(language).items() if resource in m.touches)


def what_it_does(name: str, language: str = "") -> str:
    """The sentence with which the code of a method begins, or what a model may do by that name."""
    method = METHODS[name]
    if not method.place or (language == "cuda" and method.by_model):
        return method.by_model
    module, _, attribute = method.place.partition(":")
    first = (getdoc(getattr(import_module(module), attribute)) or "").partition("\n\n")[0]
    return " ".join(first.split())
