"""A plan as a page with pictures."""
