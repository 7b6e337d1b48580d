"""Rows in, rows out. Knows no model: a tokenizer is handed in."""
