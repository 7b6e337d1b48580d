"""The parts of a model that are ours: attention, linear layers, the output layer."""
