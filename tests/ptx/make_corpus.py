"""Compile `triton_kernels.py` with Triton, without a GPU, to PTX: six kernels, three targets, two options.

    pip install triton && python tests/ptx/make_corpus.py [FOLDER]

The committed files were made by Triton 3.9.0.
"""

import gzip
import sys
from pathlib import Path

import triton
import triton_kernels as kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS = (80, 90, 100)
OPTIONS = ({"num_warps": 4, "num_stages": 2}, {"num_warps": 8, "num_stages": 4})
KERNELS = {
    "add": ("*fp32 *fp32 *fp32 i32:16", {"BLOCK": 1024}),
    "matmul": ("*fp16 *fp16 *fp16 i32:16 i32:16 i32:16 i32:16", {"M": 128, "N": 128, "K": 64}),
    "softmax": ("*fp32 *fp32 i32:16", {"BLOCK": 2048}),
    "reduction": ("*fp32 *fp32 i32:16", {"BLOCK": 1024}),
    "histogram": ("*i32 *i32 i32:16", {"BLOCK": 1024, "BINS": 128}),
    "attention": ("*fp16 *fp16 *fp16 *fp16 i32:16 fp32", {"ROWS": 128, "KEYS": 64, "D": 64}),
}


def ptx(name, target, options):
    """The PTX of one kernel for compute capability `target` / 10."""
    function = getattr(kernels, name)
    types, constants = KERNELS[name]
    signature, attributes = {}, {}
    for place, (argument, kind) in enumerate(zip(function.arg_names, types.split(), strict=False)):
        kind, _, divisor = kind.partition(":")
        signature[argument] = kind
        if divisor or kind.startswith("*"):
            attributes[(place,)] = [["tt.divisibility", 16]]
    signature.update(dict.fromkeys(constants, "constexpr"))
    places = {(function.arg_names.index(key),): value for key, value in constants.items()}
    source = ASTSource(function, signature, places, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
    return made.asm["ptx"].replace(str(Path(__file__).parent.resolve()), "/kernels")


def main(folder):
    """Write every file, gzipped with no time in its header."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in KERNELS:
        for target in TARGETS:
            for options in OPTIONS:
                text = ptx(name, target, options)
                stem = f"{name}_sm{target}_w{options['num_warps']}_s{options['num_stages']}"
                (folder / f"{stem}.ptx.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "corpus")
