"""Programs of units that apply settings at each boot, with readers and rules that are shared with the checks."""
