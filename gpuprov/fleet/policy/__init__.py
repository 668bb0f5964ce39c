"""The next actions on a fleet according to a policy: pure functions, shared by roll-outs and a single
`gpuprov apply`."""
