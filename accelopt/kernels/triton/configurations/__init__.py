"""Configurations of Triton solutions: knobs that are found in the text, and the values that are standard for
a kernel's kind. The referee judges every result."""
