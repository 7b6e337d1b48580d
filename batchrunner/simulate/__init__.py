"""The real scheduler over a cost model instead of a model. No torch, no device."""
