"""What a job file holds: frozen, validated, without behaviour of its own."""
