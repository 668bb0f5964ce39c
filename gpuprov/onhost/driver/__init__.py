"""The driver's kernel modules on a host: built aside, in place for every kernel, signed, loaded and unloaded."""
