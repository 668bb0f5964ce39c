"""Addresses in specs: one pattern for all of them, which takes no user name and no password.

A spec is shown, saved, frozen and rendered; a password belongs on the host that fetches (apt's auth.conf.d, dnf.conf, netrc).
"""

from __future__ import annotations

HOST = r"(\[[0-9A-Fa-f:.]+\]|[^\s/@:?#\[\]\\]+)(:[0-9]{1,5})?"


def url(path: str = r"/[^\s]+", schemes: str = "https?") -> str:
    """The pattern of a field that holds an address with a path like this, or nothing."""
    return rf"^$|^{schemes}://{HOST}{path}$"
