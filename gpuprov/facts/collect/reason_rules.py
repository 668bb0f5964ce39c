"""Messages of ssh, login shells and sudo, and the fix of each: the rules of `reasons`.

The messages are those of OpenSSH (`ssh.c`, `sshconnect*.c`), paramiko, shadow's nologin, pam_nologin, sudo
(`plugins/sudoers`), and sudo-rs (`src/common/error.rs`), in English: sudo is run with LC_ALL=C."""

import re
from typing import NamedTuple

from gpuprov.host_code import bundle

BY_HAND = "try it by hand"
AWAY = f"check ansible_host and ansible_port, that the host is up and that its sshd listens there, then {BY_HAND}"


class Rule(NamedTuple):
    """A line with `pattern` is the reason (`message` replaces it, with the pattern's groups), and `advice` is the
    fix."""

    pattern: str
    advice: str
    message: str = "{line}"


SUDO = (
    Rule(
        # sudo 1.9.13: `sudo: unknown user: nobodyy`; sudo-rs: `sudo: user 'nobodyy' not found`
        r"unknown user|user '.*' not found",
        "correct ansible_become_user: no user of the host is called {become_user}",
    ),
    Rule(
        # >>> /etc/sudoers: syntax error near line 30 <<<
        # sudo: parse error in /etc/sudoers near line 30
        # sudo: /etc/sudo.conf is owned by uid 1000, should be 0
        r"(parse|syntax) error|invalid configuration|no valid sudoers sources|unable to (open|stat) .*sudoers|is "
        r"world writable|is owned by [ug]id|bad permissions.*sudoers",
        "fix the sudoers files: visudo -c, as root on the host, shows where",
    ),
    Rule(
        # sudo: 1 incorrect password attempt
        # sudo: Authentication failed, try again.
        # Das hat nicht funktioniert, bitte nochmal probieren.     (in the language of the site)
        r"incorrect (password|authentication) attempt|[Ss]orry, try again|failed, try again|no password was provided"
        r"|[Ii]ncorrect \w+ password|hat nicht funktioniert",
        "correct ansible_become_password: it is what {sudo} on the host asks {name} for",
        "{sudo} does not accept ansible_become_password",
    ),
    Rule(
        # ops is not in the sudoers file.  This incident will be reported.
        # Sorry, user ops is not allowed to execute '/bin/sh -c true' as root on gpu7.
        # sudo: I'm sorry ops. I'm afraid I can't do that     (sudo-rs)
        r"not in the sudoers file|not allowed to (run sudo|execute)|may not run|afraid I can't do that",
        "allow {name} any command as {become_user} in /etc/sudoers.d, or log in as another user: ansible_user",
    ),
    # sudo: sorry, you must have a tty to run sudo
    Rule(r"must have a tty", "let {name} use sudo without a terminal: Defaults:{name} !requiretty in /etc/sudoers.d"),
    Rule(
        # sudo: a password is required
        # sudo: no tty present and no askpass program specified     (sudo 1.8)
        r"password is required|authentication is required|[Mm]issing \w+ password|no askpass program|terminal is "
        r"required",
        "set ansible_become_password, or allow {name} sudo without a password (NOPASSWD) in /etc/sudoers.d",
    ),
    Rule(
        # sudo: account validation failure, is your account locked?
        # sudo: Account or password is expired, reset your password and try again
        r"account validation failure|account.*(locked|expired)|password is expired|password has expired|account "
        r"management",
        "renew the account or its password on the host: chage --list {name} shows both",
    ),
    Rule(
        # sudo: /usr/bin/sudo must be owned by uid 0 and have the setuid bit set
        # sudo: The "no new privileges" flag is set, which prevents sudo from running as root.
        r"setuid bit|effective uid is not 0|no new privileges|nosuid",
        "sudo has lost its rights: fix its owner and mode (root, 4755), or the nosuid of its file system",
    ),
    Rule(
        # sh: 1: exec: sudo: not found     (dash)
        # sh: line 1: exec: sudo: not found     (bash)
        r"not found\Z|No such file or directory\Z",
        "install sudo on the host, name it (ansible_become_exe), or log in as root: ansible_user: root",
        "{sudo} is not on the host, or not on its path",
    ),
)
SHELL = (
    Rule(
        # This account is currently not available.     (shadow's nologin)
        r"account is currently not available|nologin: ",
        "give {name} a login shell on the host (usermod --shell /bin/bash), or log in as another user: ansible_user",
    ),
    Rule(
        # "System is booting up. Unprivileged users are not permitted to log in yet. ..."     (pam_nologin)
        r"booting up|going down|system is shutting down|[Uu]nprivileged users are not permitted",
        "wait until the host has booted; what remains is /run/nologin there",
    ),
    Rule(
        # WARNING: Your password has expired.
        # Password change required but no TTY available.
        r"[Pp]assword change required|password has expired|password will expire today|required to change your password",
        "log in by hand and set a new password, or let it not expire: chage -M -1 {name}",
    ),
    Rule(
        # Your account has expired; please contact your system administrator.
        r"account has expired|account .*expired|[Aa]ccount is locked|contact (your|the) (system )?administrator",
        "renew the account on the host: chage --list {name} shows it",
    ),
    Rule(
        # This service allows sftp connections only.
        r"sftp connections only|[Ss]hell access|restricted to|forced command",
        "the login of {name} is bound to one command (ForceCommand, command=): log in as another user: ansible_user",
    ),
    Rule(
        # rbash: line 1: sh: command not found
        # fish: Unknown command: sh
        r"restricted|sh: ([Cc]ommand )?not found|Unknown command|executable file .*not found",
        "the login shell of {name} finds no sh: give it another shell or path, or log in as another user: ansible_user",
    ),
)
DENIED = Rule(
    # ops@192.0.2.7: Permission denied (publickey).
    # [Errno 2] No such file or directory: '/keys/a'     (paramiko)
    r"[Pp]ermission denied|[Aa]uthentication|No such file or directory: '|[Pp]rivate key file is encrypted",
    "check ansible_user, ansible_ssh_private_key_file and ssh-agent, or set ansible_password",
)
SSH = (
    Rule(
        # Unable to negotiate with 192.0.2.7 port 22: no matching host key type found. Their offer: ssh-rsa,ssh-dss
        r"no matching .* found|[Uu]nable to negotiate",
        "this machine's ssh and the host's have no method in common: allow one in ~/.ssh/config, or update the host",
    ),
    Rule(
        # @    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|[Hh]ost key for server .* does not match",
        "find out why (reinstalled, or another host at this address), then forget the old key: ssh-keygen -R ADDRESS",
        "the host's key is not the one in known_hosts",
    ),
    # No ED25519 host key is known for 192.0.2.7 and you have requested strict checking.
    # Server 'gpu7' not found in known_hosts     (paramiko)
    Rule(r"[Hh]ost key|not found in known_hosts", "look at the host's key, then accept it once by hand"),
    Rule(
        # Received disconnect from 192.0.2.7 port 22:2: Too many authentication failures
        r"[Tt]oo many authentication failures",
        "ssh-agent offers too many keys: name one (ansible_ssh_private_key_file), and set IdentitiesOnly yes in "
        "~/.ssh/config",
    ),
    DENIED,
    Rule(
        # ssh: Could not resolve hostname gpu7: Name or service not known
        r"[Cc]ould not resolve|[Nn]ame or service not known|nodename nor servname|[Nn]ame resolution",
        "set ansible_host to the host's address",
    ),
    Rule(
        # ssh: connect to host 192.0.2.7 port 22: Connection refused
        # [Errno None] Unable to connect to port 22 on 192.0.2.7     (paramiko)
        r"Connection refused|No route to host|Network is unreachable|Unable to connect to port|[Cc]onnection timed "
        r"out|timed out\Z",
        AWAY,
    ),
    Rule(
        # command-line: line 0: Bad configuration option: connecttimeot
        r"[Bb]ad configuration option|command-line: line|unknown option|Bad owner or permissions",
        "correct the ssh options (ansible_ssh_common_args, ansible_ssh_extra_args) or ~/.ssh/config",
    ),
    Rule(
        # Connection closed by UNKNOWN port 65535
        # channel 0: open failed: administratively prohibited: open failed
        r"UNKNOWN port|stdio forwarding failed|administratively prohibited",
        "the jump host or proxy does not reach it: try that by hand",
    ),
)
# kex_exchange_identification: Connection closed by remote host
DROPPED = re.compile(
    r"(?:kex|ssh)_exchange_identification: (?:read: )?(?:Connection (?:closed|reset) by|.*Exceeded "
    r"MaxStartups|.*Not allowed)|Connection (?:closed|reset) by |Error reading SSH protocol banner"
)
BEFORE_LOGIN = re.compile(r"exchange_identification|reading SSH protocol banner")
DROPPED_ADVICE = (
    "its sshd, or the jump host's, lets no more in at a time (MaxStartups, PerSourceMaxStartups: reach fewer with "
    "--forks), or refuses this address (fail2ban, PerSourcePenalties, hosts.deny)"
)
CONTAINER = (
    Rule(
        # Error: no container with name or ID "gpu7" found: no such container     (podman)
        # Error response from daemon: container 0a1b is not running     (docker)
        r"no such container|[Nn]o container with name|No such container|container state improper|is not running",
        "see which containers run ({kind} ps --all), then try it by hand",
    ),
)
BUNDLE = (Rule(re.escape(bundle.MISSING), bundle.FIX, bundle.MISSING),)
KEY_FAULTS = (
    (r"Identity file (?P<key>.+?) not accessible: (?P<why>[^.]+)", "the key file {key} cannot be read: {why}"),
    (r"Permissions \S+ for '(?P<key>.+)' are too open", "the key file {key} is open to others, so ssh leaves it aside"),
    (r'Load key "(?P<key>.+)": (?P<why>.+)', "ssh cannot use the key file {key}: {why}"),
    (r"No such file or directory: '(?P<key>.+)'", "the key file {key} cannot be read: No such file or directory"),
    (r"[Pp]rivate key file is encrypted", "the key file {key} has a passphrase"),
)
NOISE = (
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
WARNINGS = re.compile(r"warning: setlocale|cannot change locale|unknown defaults entry|[_a-z] unknown option\Z")
