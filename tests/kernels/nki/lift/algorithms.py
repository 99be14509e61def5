"""Algorithms of the main classes, written in their notation: what lifting would give, without a kernel."""

import ast
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import contraction, factors_of
from accelopt.algorithm.index import Axis, Index, index_of

EPS = 1e-5
NARROW = "bfloat16"
OPERATORS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}
PLACES = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
          ast.FloorDiv: operator.floordiv}  # fmt: skip


def array(
    name: str, *shape: int, given: tuple[int, ...] | None = None, dtype: str = "float32"
) -> ir.Array:
    return ir.Array(name, shape, dtype, given or shape)


def read(name: str, *places: Axis | Index | int) -> ir.Read:
    indices = (index_of(p) if isinstance(p, Axis) else Index() + p for p in places)
    return ir.Read(name, tuple(indices))


def apply(function: str, *arguments: ir.Expression | float) -> ir.Apply:
    made = (ir.Constant(a) if isinstance(a, (int, float)) else a for a in arguments)
    return ir.Apply(function, tuple(made))


def times(*factors: ir.Expression | float) -> ir.Expression:
    first, *rest = factors
    result = ir.Constant(first) if isinstance(first, (int, float)) else first
    for factor in rest:
        result = apply("multiply", result, factor)
    return result


class Reader(dict[str, Axis]):
    """What Python's grammar makes of definitions over axes by name: `out[m] = add[k](x[m, k])` reduces,
    `scan[t](factor, term)` recurs from zero, `x if m - n >= 0 else y` chooses."""

    def definition(self, node: ast.Assign) -> ir.Definition:
        [target], value = node.targets, node.value
        places = items(target.slice) if isinstance(target, ast.Subscript) else ()
        name = getattr(target, "value", target).id
        axes = tuple(self[axis.id] for axis in places)
        if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Subscript)):
            return ir.Map(name, axes, self.expression(value))
        along = tuple(self[axis.id] for axis in items(value.func.slice))
        given = [self.expression(one) for one in value.args]
        if value.func.value.id == "scan":
            return ir.Scan(
                name, axes, *along, "multiply", given[0], "add", given[1], ir.Constant(0.0)
            )
        return ir.Reduce(name, axes, along, value.func.value.id, *given)

    def expression(self, node: ast.expr) -> ir.Expression:
        match node:
            case ast.Constant(value):
                return ir.Constant(value)
            case ast.UnaryOp(ast.USub(), ast.Constant(value)):
                return ir.Constant(-value)
            case ast.Subscript(ast.Name(name), place):
                return read(name, *map(self.index, items(place)))
            case ast.BinOp(left, sign, right):
                return apply(OPERATORS[type(sign)], *map(self.expression, (left, right)))
            case ast.Call(ast.Name("position"), [place]):
                return ir.Position(Index() + self.index(place))
            case ast.Call(ast.Name(name), arguments):
                return apply(name, *map(self.expression, arguments))
            case ast.IfExp(test, yes, no):
                tests = test.values if isinstance(test, ast.BoolOp) else [test]
                places = tuple(self.index(one.left) for one in tests)
                return ir.Where(places, self.expression(yes), self.expression(no))
        raise NotImplementedError(ast.unparse(node))

    def index(self, node: ast.expr) -> Index | int:
        match node:
            case ast.Name(name):
                return index_of(self[name])
            case ast.UnaryOp(ast.USub(), ast.Constant(value)):
                return -value
            case ast.BinOp(left, sign, right):
                return PLACES[type(sign)](self.index(left), self.index(right))
            case ast.Constant(value):
                return value
        raise NotImplementedError(ast.unparse(node))


def items(node: ast.expr) -> Sequence[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def written(
    name: str,
    sizes: Mapping[str, int],
    inputs: Mapping[str, tuple[int, ...]],
    *lines: str,
    given: Mapping[str, tuple[int, ...]] = {},
    results: Sequence[str] = (),
    dtype: str = "float32",
) -> ir.Algorithm:
    """An algorithm of axes and arrays by name; the last definition is its result, or `results` are. `given` are
    the shapes that the kernel has arrays in, where they are others."""
    reader = Reader({axis: Axis(axis, size) for axis, size in sizes.items()})
    definitions = tuple(reader.definition(one) for one in ast.parse("\n".join(lines)).body)
    shapes = {d.out: tuple(axis.extent for axis in d.axes) for d in definitions}
    outs = {one: shapes[one] for one in results or (definitions[-1].out,)}
    inputs, outputs = (
        tuple(
            array(one, *shape, given=given.get(one), dtype=dtype) for one, shape in arrays.items()
        )
        for arrays in (inputs, outs)
    )
    return ir.Algorithm(name, inputs, definitions, outputs)


def matmul(m: int, k: int, n: int) -> ir.Algorithm:
    """lhs in tiles of 128 rows and columns, as NKIBench gives it."""
    return written(
        "matmul", {"m": m, "k": k, "n": n}, {"lhs": (m, k), "rhs": (k, n)},
        "out[m, n] = add[k](lhs[m, k] * rhs[k, n])",
        given={"lhs": (m // 128, 128, k // 128, 128), "out": (m // 128, 128, n)},
    )  # fmt: skip


def transpose_matmul(m: int, k: int, n: int) -> ir.Algorithm:
    return written(
        "transpose_matmul", {"m": m, "k": k, "n": n}, {"lhs": (k, m), "rhs": (k, n)},
        "out[m, n] = add[k](lhs[k, m] * rhs[k, n])",
    )  # fmt: skip


def rmsnorm_matmul(m: int, k: int, n: int) -> ir.Algorithm:
    return written(
        "rmsnorm_matmul", {"m": m, "k": k, "n": n}, {"x": (m, k), "w": (k, n), "gain": (k,)},
        "square[m] = add[k](square(x[m, k]))",
        f"normal[m, k] = x[m, k] * rsqrt(square[m] * {1 / k} + {EPS}) * gain[k]",
        "out[m, n] = add[k](normal[m, k] * w[k, n])",
    )  # fmt: skip


def matmul_add_rmsnorm(m: int, k: int, n: int) -> ir.Algorithm:
    return written(
        "matmul_add_rmsnorm", {"m": m, "k": k, "n": n},
        {"x": (m, k), "w": (k, n), "z": (m, n), "gain": (n,)},
        "p[m, n] = add[k](x[m, k] * w[k, n])",
        "y[m, n] = p[m, n] + z[m, n]",
        "square[m] = add[n](square(y[m, n]))",
        f"out[m, n] = y[m, n] * rsqrt(square[m] * {1 / n} + {EPS}) * gain[n]",
    )  # fmt: skip


def _softmax(scores: str, rows: str, along: str, out: str) -> tuple[str, ...]:
    return (
        f"largest[{rows}] = maximum[{along}]({scores})",
        f"weight[{rows}, {along}] = exp({scores} - largest[{rows}])",
        f"total[{rows}] = add[{along}](weight[{rows}, {along}])",
        f"{out}[{rows}, {along}] = weight[{rows}, {along}] / total[{rows}]",
    )


def softmax(m: int, n: int) -> ir.Algorithm:
    lines = _softmax("x[m, n] * 0.25", "m", "n", "out")
    return written("softmax", {"m": m, "n": n}, {"x": (m, n)}, *lines)


def bmm_softmax(b: int, m: int, k: int, n: int) -> ir.Algorithm:
    return written(
        "bmm_softmax", {"b": b, "m": m, "k": k, "n": n}, {"lhs": (b, m, k), "rhs": (b, k, n)},
        "s[b, m, n] = add[k](lhs[b, m, k] * rhs[b, k, n])",
        *_softmax("s[b, m, n]", "b, m", "n", "out"),
    )  # fmt: skip


def attention(length: int, heads: int, width: int, repeat: int = 2) -> ir.Algorithm:
    """Grouped queries: `repeat` heads of q share one of k and v."""
    sizes = {"h": heads * repeat, "q": length, "key": length, "d": width, "e": width}
    shared = (length, heads, width)
    return written(
        "attention", sizes, {"q": (length, heads * repeat, width), "k": shared, "v": shared},
        f"s[h, q, key] = add[d](q[q, h, d] * k[key, h // {repeat}, d])",
        *_softmax(f"s[h, q, key] * {width**-0.5}", "h, q", "key", "p"),
        f"out[h, q, e] = add[key](p[h, q, key] * v[key, h // {repeat}, e])",
    )  # fmt: skip


def decode_attention(heads: int, length: int, width: int) -> ir.Algorithm:
    """One query a head: products with vectors."""
    sizes = {"h": heads, "key": length, "d": width, "e": width}
    inputs = {"q": (heads, width), "k": (heads, width, length), "v": (heads, length, width)}
    return written(
        "decode_attention", sizes, inputs,
        "s[h, key] = add[d](q[h, d] * k[h, d, key])",
        *_softmax(f"s[h, key] * {width**-0.5}", "h", "key", "p"),
        "out[h, e] = add[key](p[h, key] * v[h, key, e])",
    )  # fmt: skip


def pairs_rotated(rows: int, heads: int, pairs: int) -> ir.Algorithm:
    """A rotary embedding of pairs that lie beside each other: parts of a last axis of two."""
    sizes = {"r": rows, "h": heads, "m": pairs, "n": 2}
    angles = {"c": (rows, pairs), "s": (rows, pairs)}
    first, second = "x[r, h, m, 0]", "x[r, h, m, 1]"
    return written(
        "pairs_rotated", sizes, {"x": (rows, heads, pairs, 2), **angles},
        f"out[r, h, m, n] = {first} * s[r, m] + {second} * c[r, m] if n - 1 >= 0 else "
        f"{first} * c[r, m] - {second} * s[r, m]",
    )  # fmt: skip


def short_rows(rows: int, width: int) -> ir.Algorithm:
    """The mean of windows of four of rows that are short."""
    terms = " + ".join(f"x[m, n + {k}] * w[{k}, n]" for k in range(4))
    return written(
        "short_rows", {"m": rows, "n": width}, {"x": (rows, width + 3), "w": (4, width)},
        f"out[m, n] = ({terms}) * 0.25",
    )  # fmt: skip


def causal_attention(length: int, width: int) -> ir.Algorithm:
    """One head; keys behind a query are given a large negative number."""
    sizes = {"q": length, "key": length, "d": width, "e": width}
    scores = f"(s[q, key] * {width**-0.5} if q - key >= 0 else -1e30)"
    return written(
        "causal_attention", sizes, dict.fromkeys(("query", "k", "v"), (length, width)),
        "s[q, key] = add[d](query[q, d] * k[key, d])",
        *_softmax(scores, "q", "key", "p"),
        "out[q, e] = add[key](p[q, key] * v[key, e])",
    )  # fmt: skip


def banded(m: int, n: int) -> ir.Algorithm:
    """Added masks, a window of two conditions, and a choice of two tiles."""
    near = "x[m, n] if m - n + 64 >= 0 and (m - n) * -1 + 64 >= 0 else y[m, n]"
    return written(
        "banded", {"m": m, "n": n}, {"x": (m, n), "y": (m, n)},
        f"out[m, n] = exp(({near}) + (0.0 if m - n >= 0 else -3.0))",
    )  # fmt: skip


def lora(m: int, k: int, n: int, r: int) -> ir.Algorithm:
    return written(
        "lora", {"m": m, "k": k, "n": n, "r": r},
        {"x": (m, k), "w": (k, n), "a": (k, r), "b": (r, n)},
        "t[m, r] = add[k](x[m, k] * a[k, r])",
        "p[m, n] = add[k](x[m, k] * w[k, n])",
        "q[m, n] = add[r](t[m, r] * b[r, n])",
        "out[m, n] = p[m, n] + q[m, n]",
    )  # fmt: skip


def swiglu(m: int, k: int, n: int) -> ir.Algorithm:
    return written(
        "swiglu", {"m": m, "k": k, "n": n, "j": k},
        {"x": (m, k), "up": (k, n), "down": (n, k), "gate": (k, n)},
        "u[m, n] = add[k](x[m, k] * up[k, n])",
        "g[m, n] = add[k](x[m, k] * gate[k, n])",
        "h[m, n] = g[m, n] / (exp(negative(g[m, n])) + 1.0) * u[m, n]",
        "out[m, j] = add[n](h[m, n] * down[n, j])",
    )  # fmt: skip


def layernorm(m: int, n: int) -> ir.Algorithm:
    return written(
        "layernorm", {"m": m, "n": n}, {"x": (m, n), "gain": (n,), "shift": (n,)},
        "total[m] = add[n](x[m, n])",
        f"mean[m] = total[m] * {1 / n}",
        "centred[m, n] = x[m, n] - mean[m]",
        "squares[m] = add[n](square(centred[m, n]))",
        f"out[m, n] = centred[m, n] * rsqrt(squares[m] * {1 / n} + {EPS}) * gain[n] + shift[n]",
    )  # fmt: skip


def adamw(m: int, n: int) -> ir.Algorithm:
    spread = "sqrt((v[m, n] * 0.999 + g[m, n] * 0.001 * g[m, n]) * 1000.0)"
    moved = "(m[m, n] * 0.9 + g[m, n] * 0.1) * 0.01"
    return written(
        "adamw", {"m": m, "n": n}, dict.fromkeys(("theta", "g", "m", "v"), (m, n)),
        f"out[m, n] = theta[m, n] * {1 - 1e-5} - {moved} / ({spread} + 1e-8)",
    )  # fmt: skip


def rope(d: int, s: int) -> ir.Algorithm:
    """The two halves of d are turned against each other; one Map with a condition on d."""
    h = d // 2
    upper = f"x[d, s] * cos[d, s] - x[d + {h}, s] * sin[d, s]"
    lower = f"x[d - {h}, s] * sin[d - {h}, s] + x[d, s] * cos[d - {h}, s]"
    return written(
        "rope", {"d": d, "s": s}, {"x": (d, s), "cos": (h, s), "sin": (h, s)},
        f"out[d, s] = {upper} if d * -1 + {h - 1} >= 0 else {lower}",
    )  # fmt: skip


def rotated(m: int, half: int) -> ir.Algorithm:
    """Halves of short rows turned by angles that the kernel has as one row of numbers."""
    at = f"m * {half} + n"
    first = f"x[m, n] * cos[{at}] - x[m, n + {half}] * sin[{at}]"
    second = f"x[m, n] * cos[{at} - {half}] + x[m, n - {half}] * sin[{at} - {half}]"
    angles = (m * half,)
    return written(
        "rotated", {"m": m, "n": 2 * half}, {"x": (m, 2 * half), "cos": angles, "sin": angles},
        f"out[m, n] = {second} if n - {half} >= 0 else {first}",
        given={"cos": (m, half), "sin": (m, half)},
    )  # fmt: skip


def state_space(c: int, t: int, s: int) -> ir.Algorithm:
    return written(
        "state_space", {"c": c, "s": s, "t": t},
        {"delta": (c, t), "u": (c, t), "a": (c, s), "b": (s, t), "c": (s, t)},
        "h[c, s, t] = scan[t](exp(delta[c, t] * a[c, s]), delta[c, t] * b[s, t] * u[c, t])",
        "out[c, t] = add[s](c[s, t] * h[c, s, t])",
    )  # fmt: skip


def cumulative_sum(m: int, n: int) -> ir.Algorithm:
    line = "out[m, n] = scan[n](1.0, x[m, n])"
    return written("cumulative_sum", {"m": m, "n": n}, {"x": (m, n)}, line)


def bias_and_scale(m: int, n: int) -> ir.Algorithm:
    """One number a row, from two arrays, and one a column."""
    return written(
        "bias_and_scale", {"m": m, "n": n},
        {"x": (m, n), "scale": (m,), "bias": (m,), "shift": (n,)},
        "out[m, n] = tanh(x[m, n] * scale[m] + bias[m] + shift[n])",
    )  # fmt: skip


def depthwise(c: int, t: int, k: int) -> ir.Algorithm:
    """A convolution of every channel by itself; zeros stand before the first element."""
    place = f"t + k - {k - 1}"
    return written(
        "depthwise", {"c": c, "t": t, "k": k}, {"x": (c, t), "w": (c, k), "bias": (c,)},
        f"y[c, t] = add[k](x[c, {place}] * w[c, k] if {place} >= 0 else 0.0)",
        "out[c, t] = silu(y[c, t] + bias[c])",
    )  # fmt: skip


def pooled(c: int, height: int, width: int) -> ir.Algorithm:
    """The largest of every two by two elements."""
    h, w = height // 2, width // 2
    return written(
        "pooled", {"c": c, "h": h, "w": w, "a": 2, "b": 2}, {"x": (c, h, 2, w, 2)},
        "out[c, h, w] = maximum[a, b](x[c, h, a, w, b])", given={"x": (c, height, width)},
    )  # fmt: skip


def convolution(t: int, k: int, c: int, f: int) -> ir.Algorithm:
    """A product over taps and channels."""
    return written(
        "convolution", {"t": t, "f": f, "k": k, "c": c}, {"x": (t + k - 1, c), "w": (k, c, f)},
        "out[t, f] = add[k, c](x[t + k, c] * w[k, c, f])",
    )  # fmt: skip


def renamed(name: str, algorithm: ir.Algorithm) -> ir.Algorithm:
    """The same under another name."""
    return replace(algorithm, name=name)


def narrow(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The same of and to bfloat16, with operands of products rounded to it."""

    def rounded(factor: ir.Expression) -> ir.Expression:
        plain = isinstance(factor, ir.Read) and any(
            factor.array == a.name for a in algorithm.inputs
        )
        return factor if plain else ir.Apply(NARROW, (factor,))

    definitions = []
    for definition in algorithm.definitions:
        if isinstance(definition, ir.Reduce) and contraction(definition):
            factors = map(rounded, factors_of(definition.expression))
            definition = replace(definition, expression=times(*factors))
        definitions.append(definition)
    inputs, outputs = (
        tuple(replace(array, dtype=NARROW) for array in arrays)
        for arrays in (algorithm.inputs, algorithm.outputs)
    )
    name = f"{algorithm.name}_{NARROW}"
    return ir.Algorithm(name, inputs, tuple(definitions), outputs)


SMALL = (
    matmul(256, 256, 1024),
    transpose_matmul(256, 256, 912),
    rmsnorm_matmul(256, 256, 512),
    matmul_add_rmsnorm(256, 256, 1024),
    softmax(256, 1536),
    bmm_softmax(2, 256, 64, 1024),
    attention(512, 2, 128),
    lora(512, 256, 1024, 128),
    swiglu(512, 256, 512),
    layernorm(256, 1024),
    adamw(256, 768),
    rope(128, 4096),
    state_space(128, 1024, 4),
    cumulative_sum(256, 2048),
    bias_and_scale(512, 768),
    causal_attention(512, 64),
    banded(256, 1024),
    depthwise(256, 1024, 4),
    depthwise(256, 1024, 12),
    decode_attention(4, 256, 64),
    pairs_rotated(256, 4, 16),
    short_rows(4096, 24),
    pooled(128, 16, 32),
    convolution(256, 3, 256, 512),
    rotated(2048, 32),
    renamed("ragged_layernorm", layernorm(263, 1024)),
    renamed("ragged_matmul", rmsnorm_matmul(263, 256, 512)),
    renamed("ragged_scan", cumulative_sum(263, 1024)),
    narrow(bias_and_scale(256, 512)),
    narrow(matmul(256, 256, 1024)),
    narrow(attention(512, 2, 128)),
    narrow(swiglu(512, 256, 512)),
    narrow(layernorm(256, 1024)),
    narrow(cumulative_sum(128, 1024)),
)
