"""The error for a host that could not be read: its reason omits the host's name, so that an outage of many hosts is
reported once."""

import re

from gpuprov.core.errors import UnreachableError


class Unreached(UnreachableError):
    """A host could not be read. `reason` and `advice` are equal for hosts with the same failure; `command` reproduces
    it by hand for this host.

    `dropped`: sshd closed the connection before the login, as it does while too many log in.
    """

    def __init__(
        self, host: str, reason: str, advice: str = "", *, place: str = "", command: str = "", dropped: bool = False
    ) -> None:
        where = host if place in ("", host) else f"{host} ({place})"
        super().__init__(
            f"{where}: {reason.rstrip('.')}", f"{advice}: {command}" if advice.endswith("by hand") else advice
        )
        self.reason, self.advice, self.command, self.dropped = reason, advice, command, dropped


def without_host(text: str, names: tuple[str, ...]) -> str:
    """Remove the host from a client's message: `root@192.0.2.1: Permission denied` becomes `Permission denied`."""
    for name in sorted(filter(None, names), key=len, reverse=True):
        word = rf"(?<![\w.-])(?:[\w.-]+@)?\[?{re.escape(name)}\]?(?![\w-]|\.\w)"
        text = re.sub(rf"^{word}:\s*", "", text)
        text = re.sub(rf"connect to host {word} port", "connect to port", text)
        text = re.sub(rf"resolve hostname {word}", "resolve the host's name", text)
        text = re.sub(rf" (by|with) {word}", r" \1 the host", text)
        text = re.sub(rf"with name or ID \"{word}\"", "of this name or ID", text)
        text = re.sub(rf"container:? \"?{word}\"?", "container of this name", text)
    text = re.sub(r" (by|with) (?:\d+\.){3}\d+(?= port)", r" \1 the host", text)
    return re.sub(r"(by|with) the host port (\d+)", r"\1 the host, port \2", text)
