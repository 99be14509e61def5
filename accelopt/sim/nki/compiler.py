"""neuronxcc.nki.compiler: hints and direct allocation."""
