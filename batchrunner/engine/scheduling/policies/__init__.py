"""In which order requests run, and who gives way: one small class a policy."""
