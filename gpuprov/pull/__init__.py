"""Bundles for hosts that pull: the signed content that each needs to verify or apply itself, and what makes a host a
puller."""
