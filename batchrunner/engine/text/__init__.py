"""Text to token ids and back, and logits to token ids."""
