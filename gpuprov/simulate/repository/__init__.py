"""The package repositories of simulated hosts: built once, kept in the cache, served to the hosts."""
