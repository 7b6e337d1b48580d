"""The life of one run: from a job file to a finished output folder, through any number of interruptions."""
