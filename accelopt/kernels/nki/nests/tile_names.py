"""What a reader would call a value: by what it is made of, briefly."""

from __future__ import annotations

from functools import lru_cache

from accelopt.kernels.nki.nests.values import Value

ROOT = "value"
LONGEST = 22
"""Characters of a name made of the names of two values; longer ones are told by what is done."""
RESULTS = {
    "exp": "exponentials", "square": "{}_squared", "rsqrt": "inverse_root", "sqrt": "{}_root",
    "reciprocal": "inverse_{}", "silu": "{}_activated", "gelu": "{}_activated",
    "gelu_apprx_tanh": "{}_activated", "relu": "{}_positive", "sigmoid": "{}_gate",
    "log": "{}_log", "abs": "{}_magnitude",
}  # fmt: skip
"""Of one value, named."""
JOINED = {
    "add": "{}_plus_{}",
    "subtract": "{}_minus_{}",
    "multiply": "{}_by_{}",
    "maximum": "{}_max_{}",
}
"""Of two values, named."""
BRIEF = {"add": "sums", "subtract": "differences", "multiply": "scaled"}
"""Of values whose names are too long."""
REDUCED = {"maximum": "max", "minimum": "min", "add": "sum", "multiply": "product"}


@lru_cache(maxsize=1024)  # parts are shared: a walk that forgot them would take exponential time
def word_of(value: Value) -> str:
    """A name for a value."""
    if value.kind == "input":
        return value.array + _offset(value)
    if value.kind == "reduce":
        return f"{_brief(value.arguments[0], 'row')}_{REDUCED.get(value.function, value.function)}"
    if value.kind == "where":
        return f"{_brief(value.arguments[0], 'values').removesuffix('_product')}_masked"
    if value.kind == "either":
        return f"{_brief(value.arguments[-1], 'values')}_chosen"
    if value.function == value.dtype:  # a rounding
        return word_of(value.arguments[0])
    if value.kind == "constant":
        return "number"
    return _applied(value)


def _offset(value: Value) -> str:
    """Where an element lies that is read at some distance from others."""
    steps = [index.constant for index in value.indices if index.constant]
    return "".join(f"_at_{step}" if step > 0 else f"_before_{-step}" for step in steps)


def _brief(value: Value, otherwise: str) -> str:
    """The name of a value in that of another: short, or not told."""
    name = word_of(value)
    name = name.removesuffix("_product")
    return name if len(name) <= LONGEST // 2 + 2 else otherwise


def _applied(value: Value) -> str:
    function, arguments = value.function, value.arguments
    if len(arguments) == 1:
        form = RESULTS.get(function, f"{{}}_{function}")
        return form.format(_brief(arguments[0], "row" if "{}_" not in form else ROOT)).strip("_")
    variables = [argument for argument in arguments if argument.kind != "constant"]
    if len(variables) == 1:
        name = _brief(variables[0], "")
        word = {"multiply": "scaled", "add": "shifted", "subtract": "shifted"}.get(
            function, function
        )
        return f"{name}_{word}" if name else word
    names = [_brief(argument, "") for argument in variables]
    if all(names) and function in JOINED and len("".join(names)) <= LONGEST - 4:
        return JOINED[function].format(*names)
    return BRIEF.get(function, function)
