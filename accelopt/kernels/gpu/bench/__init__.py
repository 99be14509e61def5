"""FlashInfer-Bench on a real GPU: trace files, child processes, referee, timing.

`accelopt.flb_wrapper` is the door of this room. Nothing here imports torch, triton or
flashinfer-bench before it needs them, so trace files can be read anywhere.
"""
