"""NKI kernels on a NeuronCore, simulated or real."""
