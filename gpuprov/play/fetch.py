"""Bring a file beside the inventory to a host that lacks it, after checking it here. The host's step does the rest."""

from typing import TypedDict

from gpuprov.host_code import files
from gpuprov.play.host import Host, Result, StepFailed

FIX = "the right file, or the sha256 that sha256sum says of it, compared with what its publisher says"


class Arguments(TypedDict, total=False):
    """Those of the task."""

    of: str
    url: str
    file: str
    path: str
    sha256: str
    most: int
    public: bool
    fix: str
    unreachable: str


def run(host: Host, arguments: Arguments) -> Result:
    """Have the host fetch the file, or copy it there. Raises StepFailed."""
    name = str(arguments.get("file") or "")
    source = _measure(host, name, arguments) if name else ""
    answer = host.step("fetch", **arguments)
    if not answer.get("missing"):
        return answer
    with host.send(source) as came:
        return host.step("fetch", **{**arguments, "came": came})


def _measure(host: Host, name: str, arguments: Arguments) -> str:
    """Return the file's path on this machine. A wrong file is refused before the host is contacted."""
    of, expected = arguments.get("of", "file"), str(arguments.get("sha256", "")).lower()
    try:
        source = host.find_file(name)
        digest = files.compute_digest(source)
    except Exception as error:
        message = f"{of}: {name} cannot be read: {error}; nothing was changed. Fix: put it there, or correct the path"
        raise StepFailed(message) from error
    if digest != expected:
        message = f"{of}: {name}: its SHA-256 is {digest}, and the spec says {expected}; nothing was changed"
        raise StepFailed(f"{message}. Fix: {arguments.get('fix') or FIX}")
    return source
