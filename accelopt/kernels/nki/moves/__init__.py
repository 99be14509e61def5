"""Source-to-source changes of NKI kernels: what can be done, where, when it is legal.

A kernel's text becomes a tree of loops and lines (`source`), which is read the way NKI traces it
(`reading`: affine index polynomials, who reads and writes what). Loop surgery (`loops`, `hoisting`,
`widening`) and terms (`terms`, `patterns`) are the tools; a move (`registry`) is a named use of them;
`propose` orders moves by what the profile says is slow.
"""
