"""Rules that several rooms decide by, and Ansible's plugins of gpuprov. Standard library only."""
