"""From an Algorithm and a schedule to Triton kernels and the host function that launches them."""
