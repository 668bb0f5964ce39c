"""A fleet in files: frozen, cut into jobs for any machine, and the results folded into one report."""
