"""Which kernels to expand next, and what to remember. Calls no model, file or device."""
