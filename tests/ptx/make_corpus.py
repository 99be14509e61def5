"""Compile `triton_kernels.py` with Triton and `cuda_kernels.cu` with nvcc to PTX, without a GPU.

    pip install triton && python tests/ptx/make_corpus.py [FOLDER]

Six kernels for three targets with two sets of options, and the product with more stages; all CUDA
kernels for three targets, once for a debugger. The committed files were made by Triton 3.9.0 and nvcc
13.0.
"""

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
import triton_kernels as kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS = (80, 90, 100)
OPTIONS = ({"num_warps": 4, "num_stages": 2}, {"num_warps": 8, "num_stages": 4})
MORE_STAGES = {"num_warps": 4, "num_stages": 4}
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


def cuda(flags):
    """The PTX of all CUDA kernels."""
    here = Path(__file__).parent.resolve()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.ptx"
        subprocess.run(
            ["nvcc", "-ptx", *flags, "-o", made, "cuda_kernels.cu"], cwd=here, check=True
        )
        return made.read_text().replace(str(here), "/kernels")


def main(folder):
    """Write every file, gzipped with no time in its header."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(stem, text):
        (folder / f"{stem}.ptx.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))

    sets = [
        (name, target, options) for name in KERNELS for target in TARGETS for options in OPTIONS
    ]
    sets += [("matmul", target, MORE_STAGES) for target in TARGETS]
    for name, target, options in sets:
        stem = f"{name}_sm{target}_w{options['num_warps']}_s{options['num_stages']}"
        write(stem, ptx(name, target, options))
    for target in ("80", "90a", "100a"):
        write(f"cuda_sm{target}", cuda([f"-arch=sm_{target}", "-lineinfo"]))
    write("cuda_sm90a_debug", cuda(["-arch=sm_90a", "-G"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "corpus")
