"""Kernels in Gluon, Triton's lower language, where the order of copies and products decides.

`shapes` says what each name of a Triton kernel is, `steps` what a step of its loop over keys loads
and multiplies, `writing` puts expressions and statements into Gluon, and `beside` writes the kernel
and has the host code choose between the two.
"""
