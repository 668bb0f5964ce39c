"""A file that the spec names and the host gets: an installer, or the package that brings a package source."""

import msgspec


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of step fetch: `url`, or else `file` beside the inventory."""

    of: str
    url: str
    file: str
    path: str
    sha256: str
    most: int
    hint: str
    public: bool = False
    unreachable: str = "correct the url, the network, or the proxy of the host"
