"""Kernels in Gluon, Triton's lower language, where the order of copies and products decides.

`beside` is the move: the kernel, and with `choice` the host code's between it and the one in Triton.
`spelling` and `edges` put a Triton kernel into the one form that the rest reads: `shapes` says what
each of its names holds, `steps` what a step of its loop over keys loads and multiplies, `alignment`
what the host has to ask before 16 bytes are copied at once. `writing` puts expressions and statements
into Gluon, and `kernel` the function with its loop.
"""
