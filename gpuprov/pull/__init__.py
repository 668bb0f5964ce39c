"""Bundles for hosts that pull: what each needs to verify or apply itself, signed; and what makes a host a puller."""
