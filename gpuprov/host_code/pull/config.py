"""/etc/gpuprov/pull.json: this host's name, the location of its bundle, the permitted signers, and the destination of
results."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from . import kept
from .limits import CONFIG
from .refused import Refused

PLACE = "/etc/gpuprov/pull.json"
FIX = "gpuprov bundle --pull writes it, into cloud-init/HOST.yaml"
RSYNC = "rsync:"
PLACES = {
    "source": "an absolute path, or https://HOST/PATH without user name and password (token_file has a token)",
    "results": f"an absolute path, https://HOST/PATH without user name and password (PUT), or {RSYNC}DESTINATION "
    "(password_file)",
}
_HTTPS = re.compile(r"https://(\[[0-9A-Fa-f:.]+\]|[^\s/@:?#\[\]\\]+)(:[0-9]{1,5})?(/[^\s?#]*)?")
_PASSWORD = re.compile(r"^([a-z0-9+.-]*:?//)?[^/@]*:[^/@]*@")
_NAME = re.compile(r"[\w][\w.:%@+-]*")
_FILE = re.compile(r"[\w%~@+][\w.%~@+-]*")


class Config(NamedTuple):
    """`mode`: the maximum that this host permits. `declared`: the word that identifies this host, if the inventory has
    one. `result`: the name of its result. `token_file`: a bearer token for https. `python`: replaces the one that is
    found."""

    name: str
    source: str
    signers: str = "/etc/gpuprov/allowed_signers"
    results: str = ""
    result: str = ""
    mode: str = "apply"
    declared: str = ""
    ca_file: str = ""
    token_file: str = ""
    password_file: str = ""
    python: str = ""
    state: str = "/var/lib/gpuprov/pull"


def read(path: str) -> Config:
    """Read the configuration. Raises Refused if it is missing, not root's own, or invalid."""
    try:
        data = kept.read_contents(path, CONFIG, own=True)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", FIX) from None
    settings = kept.parse_mapping(data, path, FIX)
    unknown = sorted(set(settings) - set(Config._fields))
    wrong = sorted(name for name, value in settings.items() if not isinstance(value, str))
    if unknown or wrong:
        allowed = f"allowed: {', '.join(Config._fields)}, each a text"
        raise Refused(f"{path}: {(unknown or wrong)[0]!r} is unknown, or no text; {allowed}", FIX)
    missing = [name for name in ("name", "source") if not settings.get(name)]
    if missing:
        raise Refused(f"{path} has no {missing[0]}", FIX)
    config = Config(**settings)
    _judge(config, path)
    return config._replace(result=config.result or f"{config.name}.json")


def find_misplacement(name: str, place: str) -> str:
    """Return the problem with a location of bundles or results, and what is allowed; "" if it is allowed. Repeats no
    password."""
    good = place.startswith("/") or bool(_HTTPS.fullmatch(place))
    if name == "results":
        good = good or not place or (place.startswith(RSYNC) and not _PASSWORD.search(place[len(RSYNC) :]))
    problem = "has a user name, a password or a query" if {*place} & {*"@?#"} else f"is {place!r}"
    return "" if good else f"{problem}; allowed: {PLACES[name]}"


def _judge(config: Config, path: str) -> None:
    if not _NAME.fullmatch(config.name) or (config.result and not _FILE.fullmatch(config.result)):
        raise Refused(f"{path}: name or result is not a name of a host or a file", FIX)
    if config.mode not in ("report", "apply"):
        raise Refused(f"{path}: mode is {config.mode!r}; allowed: report, apply", FIX)
    for name in PLACES:
        if why := find_misplacement(name, getattr(config, name)):
            raise Refused(f"{path}: {name} {why}", FIX)
    for name in ("signers", "ca_file", "token_file", "password_file", "python", "state"):
        if getattr(config, name) and not os.path.isabs(getattr(config, name)):
            raise Refused(f"{path}: {name} is {getattr(config, name)!r}; allowed: an absolute path", FIX)
