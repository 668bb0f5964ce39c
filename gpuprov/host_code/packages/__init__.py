"""Packages on a host, by apt, dnf or zypper: installed packages, trial runs, transactions, holds, files.

One interface (`model.Manager`), a module for each package manager, and one judge of permitted transactions (`judge`).
"""
