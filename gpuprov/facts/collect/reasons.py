"""Reason and fix for a script that did not start, from the output of ssh, a login shell or sudo. This is the only place
with that rule, and pure."""

import re
from typing import NamedTuple

from gpuprov.core import ended
from gpuprov.facts.collect.reason_rules import (
    BEFORE_LOGIN,
    BUNDLE,
    BY_HAND,
    CONTAINER,
    DENIED,
    DROPPED,
    DROPPED_ADVICE,
    KEY_FAULTS,
    NOISE,
    SHELL,
    SSH,
    SUDO,
    WARNINGS,
    Rule,
)

# A line that our first shell prints to standard error before it starts sudo: the lines after it are sudo's.
LOGGED_IN = "gpuprov-login"


class Login(NamedTuple):
    """The user and method of a login. `sudo` is the program that becomes another user; `key` the inventory's key file,
    and `key_trouble` the error if this machine cannot read it."""

    user: str = ""
    become_user: str = "root"
    sudo: str = "sudo"
    key: str = ""
    key_trouble: str = ""
    kind: str = "ssh"

    @property
    def name(self) -> str:
        return self.user or "this user"


class Reason(NamedTuple):
    """The reason why no script ran."""

    message: str
    advice: str = BY_HAND
    # The login works, but becoming another user failed.
    become: bool = False
    # sshd closed the connection before it sent anything, as it does while too many log in.
    dropped: bool = False


_CUT = re.compile("closed by remote host|Connection reset|Broken pipe")
_ANSIBLES_BECOME = re.compile(r"(Missing|Incorrect) \w+ password")
_ANSIBLE = re.compile(
    r"^\[ERROR\]: (?:(?:Task|Action|Module) failed: )*(?:Failed to connect to the host via ssh: )?(.*)"
)


def reason(login: Login, out: bytes, error: bytes, status: int | None) -> Reason:
    """Find the reason why no script ran in the complete output. It is never more than one line of it."""
    printed, complained = _split_lines(out), _split_lines(error)
    if status is None and (words := program(complained[-1] if complained else "", login.kind)):
        return Reason(*words)
    if login.kind == "ansible" and status is not None:  # None: it could not be started, and the system says why
        printed, complained = _split_ansible_output(printed, complained)
    become = LOGGED_IN in complained
    if become:
        complained = complained[complained.index(LOGGED_IN) + 1 :]
    lines = [line for line in [*complained, *printed] if not line.startswith(NOISE) and not WARNINGS.search(line)]
    if match := _match_rules(BUNDLE, lines, login):
        return match.reason
    if become or (login.kind == "ansible" and any(map(_ANSIBLES_BECOME.search, lines))):
        return _find_sudo_reason(lines, login, status)
    rules: tuple[Rule, ...] = SHELL
    if login.kind in ("podman", "docker"):
        rules = (*CONTAINER, *SHELL)
    elif status in (ended.OF_SSH, None) or login.kind != "ssh":
        rules = (*SSH, *SHELL)
        # Where a proxy failed, it has said why before.
        if any(map(BEFORE_LOGIN.search, lines)) and all(map(DROPPED.match, lines)):
            return Reason(lines[-1], DROPPED_ADVICE, dropped=True)
    if match := _match_rules(rules, lines, login):
        return _add_key_problem(lines, match.reason, login) if match.rule is DENIED else match.reason
    errors = [line for line in complained if line in lines] or lines
    if errors:
        return Reason(errors[-1])
    if login.kind == "ssh" and status == ended.OF_SSH:
        return Reason(ended.connection(status) if any(map(_CUT.search, complained)) else "ssh ended without a word")
    if login.kind == "ssh" and (cut := ended.connection(status)):
        return Reason(cut)
    shell = "the program" if login.kind in ("podman", "docker") else f"the login shell of {login.name}"
    return Reason(f"{shell} ended with status {status} without a word", SHELL[0].advice.format(name=login.name))


def _find_sudo_reason(lines: list[str], login: Login, status: int | None) -> Reason:
    if match := _match_rules(SUDO, lines, login):
        return match.reason._replace(become=True)
    sudo_lines = [line for line in lines if line.startswith(f"{login.sudo}:")] or lines
    if not sudo_lines and login.kind == "ssh" and (cut := ended.connection(status)):
        return Reason(cut)
    return Reason(
        sudo_lines[-1] if sudo_lines else f"{login.sudo} ended with status {status} without a word", become=True
    )


class _Found(NamedTuple):
    rule: Rule
    reason: Reason


def _match_rules(rules: tuple[Rule, ...], lines: list[str], login: Login) -> _Found | None:
    """Return the result of the first rule that matches a line."""
    for rule in rules:
        for line in lines:
            if match := re.search(rule.pattern, line):
                words = {**login._asdict(), "name": login.name, "line": line, **match.groupdict()}
                return _Found(rule, Reason(rule.message.format(**words), rule.advice.format(**words)))
    return None


def _add_key_problem(lines: list[str], denied: Reason, login: Login) -> Reason:
    """Add a problem with the key file to `Permission denied`."""
    if login.key_trouble:
        message = f"{denied.message.rstrip('.')}; the key file {login.key} cannot be read: {login.key_trouble}"
        return Reason(message, "correct ansible_ssh_private_key_file, or set ansible_password")
    for pattern, words in KEY_FAULTS:
        for line in lines:
            if key := re.search(pattern, line):
                trouble = words.format(**{"key": login.key, **key.groupdict()})
                message = trouble if key.string == denied.message else f"{denied.message.rstrip('.')}; {trouble}"
                do = "chmod 600 on" if "open to others" in trouble else "correct"
                return Reason(message, f"{do} ansible_ssh_private_key_file, or set ansible_password")
    return denied


def _split_lines(stream: bytes) -> list[str]:
    """Return the stream's lines, without unprintable characters and cut to a readable length."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.decode(errors="replace"))
    lines = ("".join(c for c in line if c.isprintable()).strip() for line in text.splitlines())
    return [line[:300] for line in lines if line]


def _split_ansible_output(printed: list[str], complained: list[str]) -> tuple[list[str], list[str]]:
    """Split the output of one task of Ansible's `minimal` callback into the host's output and Ansible's errors."""
    matches = (
        match for line in [*complained, *printed] if (match := _ANSIBLE.match(line))
    )  # 2.19 prints them on either stream
    errors = [match[1] for match in matches if match[1] != "non-zero return code"]
    body = [line for line in printed if line != "non-zero return code"]
    starts = [number for number, line in enumerate(body) if line.endswith((">>", "=> {"))]
    return ([] if errors else body[starts[0] + 1 :] if starts else body), errors


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
