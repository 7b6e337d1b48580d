"""How a job file is read and checked, and what is said when it is wrong."""
