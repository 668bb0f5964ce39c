"""Packages on a host, by apt, dnf or zypper: what is there, what a transaction would do, one transaction, holds, files.

One interface (`model.Manager`), a module for each package manager, and one judge of what a transaction may do (`judge`).
"""
