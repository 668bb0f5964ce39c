"""MPS control daemons of a host: the desired daemons, the actions of their units, and their limits; by a module and at
each start."""
