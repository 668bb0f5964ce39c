"""Reason and fix for a script that did not start, from the output of ssh, a login shell or sudo. This is the only place
with that rule, and pure. The messages are those of OpenSSH (`ssh.c`, `sshconnect*.c`), paramiko, shadow's nologin,
pam_nologin, sudo (`plugins/sudoers`), and sudo-rs (`src/common/error.rs`), in English: sudo is run with LC_ALL=C."""

import re
from typing import NamedTuple

from gpuprov.core import ended
from gpuprov.facts.collect import missing
from gpuprov.host_code import bundle

LOGGED_IN = "gpuprov-login"
"""A line that our first shell prints to standard error before it starts sudo: the lines after it are sudo's."""
BY_HAND = "try it by hand"
AWAY = f"check ansible_host and ansible_port, that the host is up and that its sshd listens there, then {BY_HAND}"


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
    """The reason why no script ran. `become`: the login works, but becoming another user failed. `dropped`: sshd closed
    the connection before it sent anything, as it does while too many log in."""

    message: str
    advice: str = BY_HAND
    become: bool = False
    dropped: bool = False


class _Rule(NamedTuple):
    """A line with `pattern` is the reason (`message` replaces it, with the pattern's groups), and `advice` is the
    fix."""

    pattern: str
    advice: str
    message: str = "{line}"


_SUDO = (
    _Rule(
        r"unknown user|user '.*' not found", "correct ansible_become_user: no user of the host is called {become_user}"
    ),
    _Rule(
        r"(parse|syntax) error|invalid configuration|no valid sudoers sources|unable to (open|stat) .*sudoers|is "
        r"world writable|is owned by [ug]id|bad permissions.*sudoers",
        "fix the sudoers files: visudo -c, as root on the host, shows where",
    ),
    _Rule(
        r"incorrect (password|authentication) attempt|[Ss]orry, try again|failed, try again|no password was provided"
        r"|[Ii]ncorrect \w+ password|hat nicht funktioniert",
        "correct ansible_become_password: it is what {sudo} on the host asks {name} for",
        "{sudo} does not accept ansible_become_password",
    ),
    _Rule(
        r"not in the sudoers file|not allowed to (run sudo|execute)|may not run|afraid I can't do that",
        "allow {name} any command as {become_user} in /etc/sudoers.d, or log in as another user: ansible_user",
    ),
    _Rule(r"must have a tty", "let {name} use sudo without a terminal: Defaults:{name} !requiretty in /etc/sudoers.d"),
    _Rule(
        r"password is required|authentication is required|[Mm]issing \w+ password|no askpass program|terminal is "
        r"required",
        "set ansible_become_password, or allow {name} sudo without a password (NOPASSWD) in /etc/sudoers.d",
    ),
    _Rule(
        r"account validation failure|account.*(locked|expired)|password is expired|password has expired|account "
        r"management",
        "renew the account or its password on the host: chage --list {name} shows both",
    ),
    _Rule(
        r"setuid bit|effective uid is not 0|no new privileges|nosuid",
        "sudo has lost its rights: fix its owner and mode (root, 4755), or the nosuid of its file system",
    ),
    _Rule(
        r"not found\Z|No such file or directory\Z",
        "install sudo on the host, name it (ansible_become_exe), or log in as root: ansible_user: root",
        "{sudo} is not on the host, or not on its path",
    ),
)
_SHELL = (
    _Rule(
        r"account is currently not available|nologin: ",
        "give {name} a login shell on the host (usermod --shell /bin/bash), or log in as another user: ansible_user",
    ),
    _Rule(
        r"booting up|going down|system is shutting down|[Uu]nprivileged users are not permitted",
        "wait until the host has booted; what remains is /run/nologin there",
    ),
    _Rule(
        r"[Pp]assword change required|password has expired|password will expire today|required to change your password",
        "log in by hand and set a new password, or let it not expire: chage -M -1 {name}",
    ),
    _Rule(
        r"account has expired|account .*expired|[Aa]ccount is locked|contact (your|the) (system )?administrator",
        "renew the account on the host: chage --list {name} shows it",
    ),
    _Rule(
        r"sftp connections only|[Ss]hell access|restricted to|forced command",
        "the login of {name} is bound to one command (ForceCommand, command=): log in as another user: ansible_user",
    ),
    _Rule(
        r"restricted|sh: ([Cc]ommand )?not found|Unknown command|executable file .*not found",
        "the login shell of {name} finds no sh: give it another shell or path, or log in as another user: ansible_user",
    ),
)
_DENIED = _Rule(
    r"[Pp]ermission denied|[Aa]uthentication|No such file or directory: '|[Pp]rivate key file is encrypted",
    "check ansible_user, ansible_ssh_private_key_file and ssh-agent, or set ansible_password",
)
_SSH = (
    _Rule(
        r"no matching .* found|[Uu]nable to negotiate",
        "this machine's ssh and the host's have no method in common: allow one in ~/.ssh/config, or update the host",
    ),
    _Rule(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|[Hh]ost key for server .* does not match",
        "find out why (reinstalled, or another host at this address), then forget the old key: ssh-keygen -R ADDRESS",
        "the host's key is not the one in known_hosts",
    ),
    _Rule(r"[Hh]ost key|not found in known_hosts", "look at the host's key, then accept it once by hand"),
    _Rule(
        r"[Tt]oo many authentication failures",
        "ssh-agent offers too many keys: name one (ansible_ssh_private_key_file), and set IdentitiesOnly yes in "
        "~/.ssh/config",
    ),
    _DENIED,
    _Rule(
        r"[Cc]ould not resolve|[Nn]ame or service not known|nodename nor servname|[Nn]ame resolution",
        "set ansible_host to the host's address",
    ),
    _Rule(
        r"Connection refused|No route to host|Network is unreachable|Unable to connect to port|[Cc]onnection timed "
        r"out|timed out\Z",
        AWAY,
    ),
    _Rule(
        r"[Bb]ad configuration option|command-line: line|unknown option|Bad owner or permissions",
        "correct the ssh options (ansible_ssh_common_args, ansible_ssh_extra_args) or ~/.ssh/config",
    ),
    _Rule(
        r"UNKNOWN port|stdio forwarding failed|administratively prohibited",
        "the jump host or proxy does not reach it: try that by hand",
    ),
)
_DROPPED = re.compile(
    r"(?:kex|ssh)_exchange_identification: (?:read: )?(?:Connection (?:closed|reset) by|.*Exceeded "
    r"MaxStartups|.*Not allowed)|Connection (?:closed|reset) by |Error reading SSH protocol banner"
)
_BEFORE_LOGIN = re.compile(r"exchange_identification|reading SSH protocol banner")
_DROPPED_ADVICE = (
    "its sshd, or the jump host's, lets no more in at a time (MaxStartups, PerSourceMaxStartups: reach fewer with "
    "--forks), or refuses this address (fail2ban, PerSourcePenalties, hosts.deny)"
)
_CONTAINER = (
    _Rule(
        r"no such container|[Nn]o container with name|No such container|container state improper|is not running",
        "see which containers run ({kind} ps --all), then try it by hand",
    ),
)
_BUNDLE = (_Rule(re.escape(bundle.MISSING), bundle.FIX, bundle.MISSING),)
_KEY = (
    (r"Identity file (?P<key>.+?) not accessible: (?P<why>[^.]+)", "the key file {key} cannot be read: {why}"),
    (r"Permissions \S+ for '(?P<key>.+)' are too open", "the key file {key} is open to others, so ssh leaves it aside"),
    (r'Load key "(?P<key>.+)": (?P<why>.+)', "ssh cannot use the key file {key}: {why}"),
    (r"No such file or directory: '(?P<key>.+)'", "the key file {key} cannot be read: No such file or directory"),
    (r"[Pp]rivate key file is encrypted", "the key file {key} has a passphrase"),
)
_NOISE = (
    "Warning: Permanently added",
    "Connection to ",
    "Shared connection to ",
    "Killed by signal",
    "sudo: unable to resolve host",
    "sudo: setrlimit",
    "sudo: ldap_",
    "sudo: unable to mkdir",
    "Could not chdir to home directory",
    "** WARNING: connection is not using a post-quantum",
    "** This session may be vulnerable",
    "** The server may need to be upgraded",
)
_WARNINGS = re.compile(r"warning: setlocale|cannot change locale|unknown defaults entry|[_a-z] unknown option\Z")
_CUT = re.compile("closed by remote host|Connection reset|Broken pipe")
_ANSIBLES_BECOME = re.compile(r"(Missing|Incorrect) \w+ password")
_ANSIBLE = re.compile(
    r"^\[ERROR\]: (?:(?:Task|Action|Module) failed: )*(?:Failed to connect to the host via ssh: )?(.*)"
)


def reason(login: Login, out: bytes, error: bytes, status: int | None) -> Reason:
    """Find the reason why no script ran in the complete output. It is never more than one line of it."""
    printed, complained = _split_lines(out), _split_lines(error)
    if status is None and (words := missing.program(complained[-1] if complained else "", login.kind)):
        return Reason(*words)
    if login.kind == "ansible" and status is not None:  # None: it could not be started, and the system says why
        printed, complained = _split_ansible_output(printed, complained)
    become = LOGGED_IN in complained
    if become:
        complained = complained[complained.index(LOGGED_IN) + 1 :]
    lines = [line for line in [*complained, *printed] if not line.startswith(_NOISE) and not _WARNINGS.search(line)]
    if match := _match_rules(_BUNDLE, lines, login):
        return match.reason
    if become or (login.kind == "ansible" and any(map(_ANSIBLES_BECOME.search, lines))):
        return _find_sudo_reason(lines, login, status)
    rules: tuple[_Rule, ...] = _SHELL
    if login.kind in ("podman", "docker"):
        rules = (*_CONTAINER, *_SHELL)
    elif status in (ended.OF_SSH, None) or login.kind != "ssh":
        rules = (*_SSH, *_SHELL)
        # Where a proxy failed, it has said why before.
        if any(map(_BEFORE_LOGIN.search, lines)) and all(map(_DROPPED.match, lines)):
            return Reason(lines[-1], _DROPPED_ADVICE, dropped=True)
    if match := _match_rules(rules, lines, login):
        return _add_key_problem(lines, match.reason, login) if match.rule is _DENIED else match.reason
    errors = [line for line in complained if line in lines] or lines
    if errors:
        return Reason(errors[-1])
    if login.kind == "ssh" and status == ended.OF_SSH:
        return Reason(ended.connection(status) if any(map(_CUT.search, complained)) else "ssh ended without a word")
    if login.kind == "ssh" and (cut := ended.connection(status)):
        return Reason(cut)
    shell = "the program" if login.kind in ("podman", "docker") else f"the login shell of {login.name}"
    return Reason(f"{shell} ended with status {status} without a word", _SHELL[0].advice.format(name=login.name))


def _find_sudo_reason(lines: list[str], login: Login, status: int | None) -> Reason:
    if match := _match_rules(_SUDO, lines, login):
        return match.reason._replace(become=True)
    sudo_lines = [line for line in lines if line.startswith(f"{login.sudo}:")] or lines
    if not sudo_lines and login.kind == "ssh" and (cut := ended.connection(status)):
        return Reason(cut)
    return Reason(
        sudo_lines[-1] if sudo_lines else f"{login.sudo} ended with status {status} without a word", become=True
    )


class _Found(NamedTuple):
    rule: _Rule
    reason: Reason


def _match_rules(rules: tuple[_Rule, ...], lines: list[str], login: Login) -> _Found | None:
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
    for pattern, words in _KEY:
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
