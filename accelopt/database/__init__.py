"""What runs have found, kept for other runs: problems, kernels, verdicts, steps, experiences."""
