"""A roll-out: a policy over the jobs of a frozen fleet, decided by a pure function and stored, so that any process may
be killed."""
