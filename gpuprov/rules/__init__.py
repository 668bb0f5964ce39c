"""Rules shared by several packages of gpuprov, and by gpuprov's Ansible plugins. Standard library only."""
