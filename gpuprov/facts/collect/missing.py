"""Programs of this machine that are needed to reach a host, and do not start."""

import re

# Programs needed to reach hosts, and their packages.
PACKAGES = {
    "ssh": ("ssh client", "apt-get install openssh-client (or dnf install openssh-clients)"),
    "podman": ("podman", "apt-get install podman (or dnf install podman)"),
    "docker": ("docker client", "see https://docs.docker.com/engine/install"),
}
# Pattern of Python's messages for ENOENT and EACCES.
# [Errno 2] No such file or directory: 'ssh'
_ERROR = re.compile(r"\[Errno (2|13)\] (?P<why>[^:]+): '(?P<name>.+)'\Z")


def program(error: str, kind: str) -> tuple[str, str] | None:
    """Parse Python's error about a program that does not start into reason and fix; None for another error."""
    match = _ERROR.search(error)
    if not match or kind not in PACKAGES:
        return None
    name, why = match["name"], match["why"]
    if name not in PACKAGES:
        fix = "install it on this machine, or correct ansible_ssh_executable" if kind == "ssh" else "install it"
        return f"{name} does not start on this machine: {why}", fix
    what, fix = PACKAGES[name]
    if why == "No such file or directory":
        return f"no {what} on this machine", f"install it here: {fix}; or correct PATH"
    return f"{name} of this machine does not start: {why}", "correct its permissions, or PATH"
