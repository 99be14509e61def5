"""From a few small kernels, timed on a machine, to the constants that the machine has."""
