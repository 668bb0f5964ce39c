"""Files that the parts `erdma` and `efa` put on simulated hosts: programs, a unit, and stand-ins for the clouds'
installers."""
