"""Every instruction as one entry: operands, attributes, engines, limits, price, and what passes ask of it.

One file a family. A family's entries, its functions in `compute/instructions/` and in `kernels/nki/lift/`,
and the calls of the dialects that emit it stand in files of the same name.
"""
