"""MPS control daemons of a host: which there should be, what their units do, and their limits; by a module and at each start."""
