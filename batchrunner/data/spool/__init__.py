"""Prompts become requests: tokenised once, kept on disk."""
