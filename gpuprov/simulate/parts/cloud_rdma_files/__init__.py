"""What the parts `erdma` and `efa` put on simulated hosts: programs, a unit, and what stands in for the clouds' installers."""
