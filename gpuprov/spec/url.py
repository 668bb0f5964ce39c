"""Addresses in specs: one pattern for all of them, without user name, password or query.

A spec is shown, saved, frozen and rendered; a password belongs on the host that fetches (apt's auth.conf.d, dnf.conf,
netrc). Signed links and tokens have their secret in the query, and such a link expires, while a spec is proven and
applied for years.
"""

import re

from gpuprov.core.sanitize import hide
from gpuprov.spec.connection import list_texts

HOST = r"(\[[0-9A-Fa-f:.]+\]|[^\s/@:?#\[\]\\]+)(:[0-9]{1,5})?"
_QUERY = re.compile(r"://[^\s?]*\?(\S*)")


def build_pattern(path: str = r"/[^\s]+", schemes: str = "https?") -> str:
    """Return the pattern of a field that holds an address with a path like this, or nothing."""
    return rf"^$|^(?![^?]*\?){schemes}://{HOST}{path}$"


def has_query(text: str) -> bool:
    """True if the text contains an address with a query."""
    return _QUERY.search(text) is not None


def hide_queries(value: object) -> None:
    """Mask the query of every address in a value, at any depth."""
    for text in list_texts(value):
        for query in _QUERY.findall(text):
            hide(query)
