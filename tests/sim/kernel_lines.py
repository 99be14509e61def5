"""Kernels of either dialect as text, by the lines of their body."""


def writing(*lines, parameters="a", shape=None, dtype=None):
    """A kernel of these lines, with an output: like the first parameter, where nothing else is said."""
    first = parameters.partition(",")[0]
    declared = f"out = nl.ndarray({shape or f'{first}.shape'}, dtype={dtype or f'{first}.dtype'}, buffer=nl.shared_hbm)"
    body = "\n    ".join((declared, *lines, "return out"))
    return f"@nki.jit\ndef kernel({parameters}):\n    {body}\n"


def copying(*lines, **options):
    """Loads a whole tile, runs the lines, stores `t`."""
    return writing("t = nl.load(a)", *lines, "nl.store(out, t)", **options)
