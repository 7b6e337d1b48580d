"""The rows that are simulated: when they come, and how long their answers are."""
