"""The names of arithmetic that instructions carry in their `op` attributes."""

from __future__ import annotations

ARITHMETIC = frozenset(
    "add subtract multiply divide maximum minimum power mod fmod abs_max abs_min "
    "equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_xor".split()
)
BITWISE = frozenset(
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_left_shift "
    "logical_right_shift arithmetic_shift_right".split()
)
BINARY = ARITHMETIC | BITWISE

UNARY = frozenset(
    "copy exp log sqrt rsqrt square reciprocal abs negative sign relu sigmoid silu silu_dx tanh "
    "gelu gelu_apprx_tanh gelu_apprx_sigmoid gelu_apprx_sigmoid_dx gelu_dx erf erf_dx sin cos tan "
    "arctan softplus mish floor ceil trunc invert logical_not".split()
)
"""Functions of one argument; `activation` takes them as `op`."""

REDUCTIONS = frozenset(
    "add subtract multiply maximum minimum bitwise_and bitwise_or bitwise_xor logical_and "
    "logical_or mean variance".split()
)
COMBINATIONS = REDUCTIONS & BINARY
"""Reductions that go on from what was reduced before."""
COMPARISONS = frozenset("equal not_equal less less_equal greater greater_equal".split())
