"""A stand-in for the Neuron SDK that compiles microkernels to their names and computes nothing."""
