"""What the Neuron compiler decides, one module a decision, in the order of `passes`."""
