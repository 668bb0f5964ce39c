"""Steps of the Ansible module gpuprov_step, one file each: OPTIONS, as in an argument_spec, and `run`."""
