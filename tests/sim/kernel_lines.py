"""Kernels of either dialect as text, by the lines of their body."""


def writing(*lines, shape="a.shape", dtype="a.dtype"):
    """A kernel of these lines, with an output."""
    declared = f"out = nl.ndarray({shape}, dtype={dtype}, buffer=nl.shared_hbm)"
    body = "\n    ".join((declared, *lines, "return out"))
    return f"@nki.jit\ndef kernel(a):\n    {body}\n"


def copying(*lines, **options):
    """Loads a whole tile, runs the lines, stores `t`."""
    return writing("t = nl.load(a)", *lines, "nl.store(out, t)", **options)
