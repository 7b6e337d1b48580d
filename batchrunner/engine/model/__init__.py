"""The model: its files, its device, one forward pass a step."""
