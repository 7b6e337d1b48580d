"""Many prompts at once, answered in their order: above the engine, which knows requests and steps alone."""
