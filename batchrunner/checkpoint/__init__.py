"""What survives any interruption: the journal, and the parts that it commits."""
