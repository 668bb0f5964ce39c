"""A fleet in files: frozen, cut into jobs that any machine can work, and the results folded into one report."""
