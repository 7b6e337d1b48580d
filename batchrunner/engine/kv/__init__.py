"""The KV memory: blocks, who holds them, how they are found again, and where else they lie."""
