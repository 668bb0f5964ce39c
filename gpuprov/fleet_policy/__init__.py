"""What happens next on a fleet, by a policy: pure functions, which a roll-out and a single `gpuprov apply` have in common."""
