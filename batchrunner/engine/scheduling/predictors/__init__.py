"""How many tokens will a request generate? One answer a file; all of them are LengthPredictors."""
