"""Addresses in specs: one pattern for all of them, which takes no user name, no password and no query.

A spec is shown, saved, frozen and rendered; a password belongs on the host that fetches (apt's auth.conf.d, dnf.conf, netrc). A query
is where signed links and tokens have their secret, and such a link runs out, while a spec is proven and applied for years.
"""

from __future__ import annotations

import re

from gpuprov.shown import hide
from gpuprov.spec.connection import texts

HOST = r"(\[[0-9A-Fa-f:.]+\]|[^\s/@:?#\[\]\\]+)(:[0-9]{1,5})?"
_QUERY = re.compile(r"://[^\s?]*\?(\S*)")


def url(path: str = r"/[^\s]+", schemes: str = "https?") -> str:
    """The pattern of a field that holds an address with a path like this, or nothing."""
    return rf"^$|^(?![^?]*\?){schemes}://{HOST}{path}$"


def has_query(text: str) -> bool:
    """Whether there is an address with a query in the text."""
    return _QUERY.search(text) is not None


def hide_queries(value: object) -> None:
    """Have the query of every address in a value masked, wherever it stands."""
    for text in texts(value):
        for query in _QUERY.findall(text):
            hide(query)
