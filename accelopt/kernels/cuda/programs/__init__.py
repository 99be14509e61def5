"""CUDA kernels as programs: read on a parser, and written anew for another shape of their threads.

`shaping` holds the rules, and is the way in. Reading: `syntax` is the tree, `quantities` whole numbers,
`accesses` what is read and written, `loops` heads, sums and trees. `plainly` says a kernel in the one
form that is read; `inlined`, `warps` and `shuffles` take back what was done by warps, `untiled` and
`merged` what was done by shared tiles. `teams` reads a `program`, with `state`, `totals` and
`iterations`; `plane` reads planes of threads, `products` and `transposes` such kernels. Writing:
`distribution` and `wide` for programs, `tiles` and `matrices` for products.
"""
