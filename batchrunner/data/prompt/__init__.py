"""Rows become prompts: templates in their sandbox."""
