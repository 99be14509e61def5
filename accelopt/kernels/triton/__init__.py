"""Triton solutions of FlashInfer-Bench on a GPU."""
