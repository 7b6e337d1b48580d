"""Files become rows, and columns keep their types."""
