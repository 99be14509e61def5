"""Child processes for code that nobody has vouched for.

`run(command)` starts one, confined as far as the host allows, watches it, and leaves nothing of it
behind. It knows nothing of kernels.
"""
