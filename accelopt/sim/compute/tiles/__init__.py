"""Tiles at run time: registers of loops, addresses, masks, and the arrays behind operands."""
