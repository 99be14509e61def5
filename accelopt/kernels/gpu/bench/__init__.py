"""FlashInfer-Bench on a real GPU: trace files, child processes, referee, timing.

`accelopt.flb_wrapper` is its entry point. Nothing here imports torch, triton or
flashinfer-bench before it needs them, so trace files can be read anywhere.
"""
