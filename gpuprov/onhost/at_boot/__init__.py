"""Programs of units that set something at each boot, and what they have in common with those who judge the host: readers and rules."""
