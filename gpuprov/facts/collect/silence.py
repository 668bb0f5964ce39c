"""Keep-alives: the time after which a silent host is given up. A frozen host answers nothing, a slow one still answers
ssh. TCP's own keep-alives are answered by the kernel even for a frozen sshd; ssh's are answered by sshd itself
(ServerAliveInterval, ssh_config(5))."""

from collections.abc import Sequence

import msgspec

from gpuprov.facts.collect.settings import Settings
from gpuprov.spec.model import RawHost

# Seconds between keep-alives, and how many may stay unanswered: a host is given up after at most 15 + 15 x 6 = 105
# seconds.
INTERVAL, COUNT = 15, 6
SILENCE = INTERVAL * (COUNT + 1)
_VARIABLES = {
    "common_args": "ansible_ssh_common_args",
    "extra_args": "ansible_ssh_extra_args",
    "ssh_args": "ansible_ssh_args",
}
# Ansible's default for `ssh_args`.
_ANSIBLES_SSH_ARGS = "-C -o ControlMaster=auto -o ControlPersist=60s"


def keep_alive(given: Sequence[str]) -> list[str]:
    """Return ssh's keep-alive options; none if one of the arguments `given` sets them already."""
    if "serveralive" in " ".join(given).lower():
        return []
    return ["-o", f"ServerAliveInterval={INTERVAL}", "-o", f"ServerAliveCountMax={COUNT}"]


def with_keep_alive(raw: RawHost) -> RawHost:
    """Return the host with variables that enable keep-alives in Ansible's ssh; the site's ssh arguments stay. The
    options go into an unset variable: a variable's text may be data that must not become a template, so it is extended
    only if nothing in it looks like one."""
    settings = Settings(raw)
    values = {name: settings.text(name) for name in _VARIABLES}
    options = " ".join(keep_alive(list(values.values())))
    if not options:
        return raw
    place = next((name for name in _VARIABLES if _VARIABLES[name] not in raw.connection), "common_args")
    before = values[place] or (_ANSIBLES_SSH_ARGS if place == "ssh_args" else "")
    if any(mark in before for mark in ("{{", "{%", "{#")):
        return raw
    variables = raw.connection | {_VARIABLES[place]: f"{before} {options}".strip()}
    return msgspec.structs.replace(raw, connection=variables)
