"""What the GPU's own counters say of a kernel, by Nsight Compute where it may read them."""
