"""Rules that Ansible has, too, or several capabilities. Standard library only: rendered projects carry some as filters."""
