"""The package repositories of simulated hosts: built once, cached, served to the hosts."""
