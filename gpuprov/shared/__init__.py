"""Rules that the controller and Ansible share. Standard library only: rendered projects carry them as filters and beside programs."""
