"""Packages that an inventory's specs need, in a signed folder, for hosts that reach nothing else."""
