"""Repair of hosts that health calls unfit: a reset of their GPUs, then a reboot, then a ticket."""
