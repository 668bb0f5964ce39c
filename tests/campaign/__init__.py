"""The campaign of faults: applies that are disturbed in every way, judged from outside. `make faults`."""
