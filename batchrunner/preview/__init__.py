"""What `batchrun plan` says of a job file before a weight is loaded."""
