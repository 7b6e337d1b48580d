"""What a planned run will take on this machine, by what earlier runs have taught of it."""
