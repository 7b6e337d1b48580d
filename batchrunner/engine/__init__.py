"""Token ids in, token ids out: scheduling, KV memory and the forward pass. No files but the model's, no terminal."""
