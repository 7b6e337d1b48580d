"""A job's output folder: what is in it, who works on it, how far it is."""
