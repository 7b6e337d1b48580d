"""What to run in which order. Knows no model and no device."""
