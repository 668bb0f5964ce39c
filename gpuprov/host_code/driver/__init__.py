"""The driver's kernel modules on a host: built in a staging area, installed for every kernel, signed, loaded and
unloaded."""
