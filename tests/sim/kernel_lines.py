"""Kernels of either dialect as text, by the lines of their body."""

from kernel_heads import function, function_of


def writing(*lines, **options):
    """A kernel of these lines, with an output."""
    return "@nki.jit\n" + function(*lines, **options)


def copying(*lines, **options):
    """Loads a whole tile, runs the lines, stores `t`."""
    return writing("t = nl.load(a)", *lines, "nl.store(out, t)", **options)


def writing_of(parameters="a", **output):
    """What makes kernels of these parameters, with this output, of their body."""
    return lambda body: "@nki.jit\n" + function_of(parameters, **output)(body)
