"""What a step costs on a machine."""
