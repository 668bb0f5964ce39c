"""The one judge inside a play: the same checks as `plan`'s, asked under the host's lock, and what each role then brings about."""
