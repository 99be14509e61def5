"""A stand-in for the Neuron SDK in tests of the real-device path: kernels are NumPy functions."""
