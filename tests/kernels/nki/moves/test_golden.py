"""One small kernel before and after each move, to be reviewed by eye (--update-golden)."""

import pytest

from accelopt.kernels.nki.moves.move import Facts
from accelopt.kernels.nki.moves.propose import prepare
from accelopt.kernels.nki.moves.registry import MOVES, move
from accelopt.kernels.nki.parameters import ParameterFacts

HEADER = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
"""

PRODUCT = """def kernel(x, w):
    out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(4):
        rows = nl.load(x[m * 128:(m + 1) * 128, 0:256])
        for n in nl.affine_range(4):
            acc = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                # The weight is small.
                w_tile = nl.load(w[k * 128:(k + 1) * 128, n * 256:(n + 1) * 256])
                acc += nl.matmul(rows[:, k * 128:(k + 1) * 128], w_tile)
            y = nl.copy(acc)
            nl.store(out[m * 128:(m + 1) * 128, n * 256:(n + 1) * 256], value=y)
    return out
"""
PRODUCT_ARGUMENTS = {"x": ParameterFacts((512, 256)), "w": ParameterFacts((256, 1024))}

ROWS = """def kernel(x):
    out = nl.ndarray((512, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range(4):
        for j in nl.affine_range(4):
            tile = nl.load(x[i * 128 + i_p, j * 512 + i_f])
            same = nl.copy(tile)
            again = nl.load(x[128 * i + i_p, 512 * j + i_f])
            power = nl.exp(nl.multiply(same, -1.0))
            gate = nl.divide(1.0, nl.add(power, 1.0))
            result = nl.multiply(again, gate)
            nl.store(out[i * 128 + i_p, j * 512 + i_f], value=result)
    return out
"""
ROWS_ARGUMENTS = {"x": ParameterFacts((512, 2048))}

SUMS = """def kernel(x):
    out = nl.ndarray((512, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        kept[i, 0:128, 0:512] = nl.load(x[i * 128:(i + 1) * 128, 0:512])
    for k in nl.affine_range(4):
        total = nl.sum(nl.square(kept[k, 0:128, 0:512]), axis=1)
        nl.store(out[k * 128:(k + 1) * 128, 0:1], value=total)
    return out
"""
SUMS_ARGUMENTS = {"x": ParameterFacts((512, 512))}

HELPER = """def kernel(x):
    out = nl.ndarray((512, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        tile = nl.load(x[i * 128:(i + 1) * 128, 0:512])
        nl.store(out[i * 128:(i + 1) * 128, 0:512], value=swish(tile, scale=nl.square(tile)))
    return out


def swish(value, scale):
    \"\"\"value times the sigmoid of scale.\"\"\"
    power = nl.exp(nl.negative(scale))
    return nl.multiply(value, nl.reciprocal(nl.add(power, 1.0)))
"""
HELPER_ARGUMENTS = {"x": ParameterFacts((512, 512))}

TURNED = """def kernel(q, k):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    k_turned = nl.load_transpose2d(k[0:512, :])
    for i in nl.affine_range(2):
        q_turned = nl.load_transpose2d(q[i * 128:(i + 1) * 128, 0:64])
        scores = nl.matmul(q_turned, k_turned, transpose_x=True)
        nl.store(out[i * 128:(i + 1) * 128, 0:512], value=scores)
    return out
"""
TURNED_ARGUMENTS = {"q": ParameterFacts((256, 64)), "k": ParameterFacts((512, 64))}

CASES = {
    "transpose_on_engine": (TURNED, TURNED_ARGUMENTS, {}),
    "hoist": (PRODUCT, PRODUCT_ARGUMENTS, {"value": "w_tile", "loop": "m"}),
    "block": (PRODUCT, PRODUCT_ARGUMENTS, {"loop": "m", "factor": 2, "keep": False}),
    "transpose_once": (PRODUCT, PRODUCT_ARGUMENTS, {}),
    "merge_loads": (PRODUCT, PRODUCT_ARGUMENTS, {"loop": "n"}),
    "pack_stores": (PRODUCT, PRODUCT_ARGUMENTS, {"loop": "n"}),
    "change_engine": (PRODUCT, PRODUCT_ARGUMENTS, {"engine": "vector"}),
    "interchange": (ROWS, ROWS_ARGUMENTS, {}),
    "widen": (ROWS, ROWS_ARGUMENTS, {"loop": "j", "factor": 2}),
    "fuse": (ROWS, ROWS_ARGUMENTS, {"pattern": "sigmoid"}),
    "drop_copy": (ROWS, ROWS_ARGUMENTS, {}),
    "reuse_load": (ROWS, ROWS_ARGUMENTS, {}),
    "fuse_loops": (SUMS, SUMS_ARGUMENTS, {}),
    "fuse_reduction": (SUMS, SUMS_ARGUMENTS, {}),
    "inline": (HELPER, HELPER_ARGUMENTS, {}),
}


def test_every_move_has_a_golden_file():
    assert set(CASES) == set(MOVES)


@pytest.mark.parametrize("name", CASES)
def test_golden(name, golden):
    body, known, wanted = CASES[name]
    facts = Facts(arguments=known)
    kernel = prepare(HEADER + body, facts)
    options = [
        option
        for option in move(name).options(kernel, facts)
        if wanted.items() <= dict(option.site.parameters).items()
    ]
    assert options, f"{name} finds no place"
    golden(f"{name}.txt", f"# {options[0].site.text}\n{options[0].make().render()}")
