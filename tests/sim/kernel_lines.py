"""Kernels of either dialect as text, by the lines of their body."""

from kernel_heads import function


def writing(*lines, **options):
    """A kernel of these lines, with an output."""
    return "@nki.jit\n" + function(*lines, **options)


def copying(*lines, **options):
    """Loads a whole tile, runs the lines, stores `t`."""
    return writing("t = nl.load(a)", *lines, "nl.store(out, t)", **options)
