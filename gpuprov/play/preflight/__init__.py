"""The judge inside a play: the same checks as `plan`'s, run under the host's lock, and the desired state for each
role."""
