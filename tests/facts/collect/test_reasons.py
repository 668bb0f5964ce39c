"""What ssh, login shells and sudo really print -> the reason that is told, and the way out.

Captured of OpenSSH 9.2, sudo 1.9.13, shadow's nologin, rbash 5.2, paramiko 5 and ansible-core 2.19; what older and
other programs print (sudo 1.8, sudo-rs, docker, fish, busybox) stands as their sources or the reports of their users
have it.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuprov.facts.collect.reasons import LOGGED_IN, Login, reason
from gpuprov.facts.collect.unreached import Unreached, without_host
from tests.rows import run_each

NOISE = (
    "Warning: Permanently added '192.0.2.7' (ED25519) to the list of known hosts.\n"
    "bash: warning: setlocale: LC_ALL: cannot change locale (xx_XX.UTF-8)\n"
    "*** Authorized use only. Shell access is logged. sudo: a password is required. ***\n"
)
SUDOS = (
    "sudo: unable to resolve host gpu7: Name or service not known\n"
    '/etc/sudoers.d/site:1:10: unknown defaults entry "use_ptty"\n'
    "sudo: setrlimit(RLIMIT_CORE): Operation not permitted\n"
)


class Row(NamedTuple):
    """What was printed, and the beginnings of the reason and of the way out."""

    printed: str
    message: str
    advice: str


SUDO = (
    Row("sudo: a password is required", "sudo: a password is required",
        "set ansible_become_password, or allow ops sudo"),
    Row("sudo: interactive authentication is required", "sudo: interactive authentication",
        "set ansible_become_password"),
    Row("sudo: no tty present and no askpass program specified", "sudo: no tty present", "set ansible_become_password"),
    Row(
        "Sorry, try again.\n\nsudo: no password was provided\nsudo: 1 incorrect password attempt",
        "sudo does not accept ansible_become_password",
        "correct ansible_become_password",
    ),
    Row(
        "sudo: Authentication failed, try again.\nsudo: Maximum 3 incorrect authentication attempts",
        "sudo does not accept ansible_become_password",
        "correct ansible_become_password",
    ),
    Row("Listen, broccoli brains, I don't have time to listen to this trash.\nsudo: 1 incorrect password attempt",
        "sudo does not accept ansible_become_password", "correct ansible_become_password"),
    Row("Das hat nicht funktioniert, bitte nochmal probieren.", "sudo does not accept",
        "correct ansible_become_password"),
    Row("ops is not in the sudoers file.", "ops is not in the sudoers file.", "allow ops any command as root"),
    Row("ops is not in the sudoers file.  This incident will be reported.", "ops is not in the sudoers",
        "allow ops any"),
    Row("Sorry, user ops is not allowed to execute '/bin/sh -c true' as root on gpu7.", "Sorry, user ops",
        "allow ops any"),
    Row("Sorry, user ops may not run sudo on gpu7.", "Sorry, user ops may not run sudo", "allow ops any command"),
    Row("sudo: I'm sorry ops. I'm afraid I can't do that", "sudo: I'm sorry ops.", "allow ops any command as root"),
    Row("sudo: sorry, you must have a tty to run sudo", "sudo: sorry, you must have a tty",
        "let ops use sudo without a terminal"),
    Row(
        ">>> /etc/sudoers: syntax error near line 30 <<<\nsudo: parse error in /etc/sudoers near line 30\n"
        "sudo: no valid sudoers sources found, quitting\nsudo: unable to initialize policy plugin",
        ">>> /etc/sudoers: syntax error near line 30 <<<",
        "fix the sudoers files: visudo -c",
    ),
    Row(
        "/etc/sudoers.d/ops:1:5: syntax error\nops ALLL ALL\n    ^~~~\nsudo: a password is required",
        "/etc/sudoers.d/ops:1:5: syntax error",
        "fix the sudoers files",
    ),
    Row("sudo: /etc/sudoers is world writable\nsudo: no valid sudoers sources found, quitting",
        "sudo: /etc/sudoers is world writable", "fix the sudoers files"),
    Row("sudo: /etc/sudo.conf is owned by uid 1000, should be 0\nsudo: error initializing audit plugin sudoers_audit",
        "sudo: /etc/sudo.conf is owned by uid 1000", "fix the sudoers files"),
    Row("sudo: unknown user: nobodyy\nsudo: error initializing audit plugin sudoers_audit",
        "sudo: unknown user: nobodyy", "correct ansible_become_user"),
    Row("sudo: user 'nobodyy' not found", "sudo: user 'nobodyy' not found", "correct ansible_become_user"),
    Row("sh: 1: exec: sudo: not found", "sudo is not on the host", "install sudo on the host"),
    Row("sh: line 1: exec: sudo: not found", "sudo is not on the host", "install sudo on the host"),
    Row("sh: exec: line 0: sudo: not found", "sudo is not on the host", "install sudo on the host"),
    Row("sh: line 1: /opt/sudo: No such file or directory", "sudo is not on the host", "install sudo on the host"),
    Row("sudo: /usr/bin/sudo must be owned by uid 0 and have the setuid bit set", "sudo: /usr/bin/sudo must be",
        "sudo has lost"),
    Row(
        "sudo: effective uid is not 0, is /usr/bin/sudo on a file system with the 'nosuid' option set or an NFS "
        "file system without root privileges?",
        "sudo: effective uid is not 0",
        "sudo has lost its rights",
    ),
    Row('sudo: The "no new privileges" flag is set, which prevents sudo from running as root.', "sudo: The",
        "sudo has lost"),
    Row("sudo: account validation failure, is your account locked?", "sudo: account validation", "renew the account"),
    Row("sudo: Account or password is expired, reset your password and try again", "sudo: Account or",
        "renew the account"),
    Row("sudo: PAM account management error: Permission denied", "sudo: PAM account management", "renew the account"),
    Row("sudo: unable to allocate pty: No such device", "sudo: unable to allocate pty", "try it by hand"),
    Row("", "sudo ended with status 1 without a word", "try it by hand"),
)  # fmt: skip
SSH = (
    Row("ssh: connect to host 192.0.2.7 port 22: Connection refused", "ssh: connect to port 22: Connection refused",
        "check ansible"),
    Row("ssh: connect to host 192.0.2.7 port 22: No route to host", "ssh: connect to port 22: No route to host",
        "check ansible"),
    Row("ssh: connect to host gpu7 port 22: Connection timed out", "ssh: connect to port 22: Connection timed out",
        "check ansible"),
    Row("ssh: Could not resolve hostname gpu7: Name or service not known",
        "ssh: Could not resolve the host's name: Name", "set"),
    Row("ssh: Could not resolve hostname gpu7: Temporary failure in name resolution",
        "ssh: Could not resolve the host's", "set"),
    Row("ops@192.0.2.7: Permission denied (publickey).", "Permission denied (publickey).", "check ansible_user"),
    Row(
        "Warning: Identity file /keys/a.b not accessible: No such file or directory.\nops@gpu7: Permission denied "
        "(publickey).",
        "Permission denied (publickey); the key file /keys/a.b cannot be read: No such file or directory",
        "correct ansible_ssh_private_key_file",
    ),
    Row(
        "Permissions 0644 for '/keys/a' are too open.\nIt is required that your private key files are NOT "
        "accessible by others.\n"
        'This private key will be ignored.\nLoad key "/keys/a": bad permissions\nops@gpu7: Permission denied '
        '(publickey).',
        "Permission denied (publickey); the key file /keys/a is open to others",
        "chmod 600 on ansible_ssh",
    ),
    Row('Load key "/keys/a": error in libcrypto\nops@gpu7: Permission denied (publickey,password).',
        "Permission denied (publickey,password); ssh cannot use the key file /keys/a: error in libcrypto",
        "correct ansible_ssh"),
    Row(
        "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key for 192.0.2.7 has changed and you "
        "have requested strict checking.\nHost key verification failed.",
        "the host's key is not the one in known_hosts",
        "find out why",
    ),
    Row("No ED25519 host key is known for 192.0.2.7 and you have requested strict checking.\nHost key verification "
        "failed.",
        "No ED25519 host key is known for", "look at the host's key, then accept it once by hand"),
    Row("Received disconnect from 192.0.2.7 port 22:2: Too many authentication failures\nDisconnected from "
        "192.0.2.7 port 22",
        "Received disconnect from", "ssh-agent offers too many keys"),
    Row("Unable to negotiate with 192.0.2.7 port 22: no matching host key type found. Their offer: ssh-rsa,ssh-dss",
        "Unable to negotiate with the host, port 22: no matching", "this machine's ssh and the host's"),
    Row("kex_exchange_identification: Connection closed by remote host\nConnection closed by 192.0.2.7 port 22",
        "Connection closed by the host, port 22", "its sshd, or the jump host's, lets no more in at a time"),
    Row("Connection closed by UNKNOWN port 65535", "Connection closed by UNKNOWN port 65535", "the jump host or proxy"),
    Row("channel 0: open failed: administratively prohibited: open failed\nstdio forwarding failed",
        "channel 0: open failed", "the jump host or proxy"),
    Row("command-line: line 0: Bad configuration option: connecttimeot", "command-line: line 0: Bad",
        "correct the ssh options"),
    Row('"System is booting up. Unprivileged users are not permitted to log in yet. Please come back later."',
        '"System is booting up.', "wait until the host has booted"),
    Row("Your account has expired; please contact your system administrator.", "Your account has expired",
        "renew the account"),
    Row("", "ssh ended without a word", "try it by hand"),
)  # fmt: skip
SHELL = (
    Row("This account is currently not available.", "This account is currently not available.",
        "give ops a login shell"),
    Row("This service allows sftp connections only.", "This service allows sftp",
        "the login of ops is bound to one command"),
    Row("WARNING: Your password has expired.\nPassword change required but no TTY available.",
        "WARNING: Your password has expired.", "log in by hand and set a new password"),
    Row("rbash: line 1: sh: command not found", "rbash: line 1: sh: command not found",
        "the login shell of ops finds no sh"),
    Row("fish: Unknown command: sh", "fish: Unknown command: sh", "the login shell of ops finds no sh"),
    Row("sh: Command not found.", "sh: Command not found.", "the login shell of ops finds no sh"),
    Row("", "the login shell of ops ended with status 1 without a word", "give ops a login shell"),
    Row("bash: fork: retry: Resource temporarily unavailable", "bash: fork: retry: Resource", "try it by hand"),
)  # fmt: skip
PARAMIKO = (
    Row("Authentication failed.", "Authentication failed.", "check ansible_user"),
    Row(
        "[Errno 2] No such file or directory: '/keys/a'",
        "the key file /keys/a cannot be read: No such",
        "correct ansible_ssh",
    ),
    Row(
        "[Errno None] Unable to connect to port 22 on 192.0.2.7",
        "[Errno None] Unable to connect to port 22",
        "check ansible_host",
    ),
    Row("Server 'gpu7' not found in known_hosts", "Server 'gpu7' not found in known_hosts", "look at the host's key"),
    Row("Private key file is encrypted", "the key file  has a passphrase", "correct ansible_ssh"),
)
CONTAINER = (
    Row(
        'Error: no container with name or ID "gpu7" found: no such container',
        "Error: no container of this name or ID",
        "see",
    ),
    Row(
        "Error response from daemon: container 0a1b is not running",
        "Error response from daemon: container 0a1b",
        "see which",
    ),
    Row(
        "Error: can only create exec sessions on running containers: container state improper",
        "Error: can only",
        "see which",
    ),
)


def told(row: Row, login: Login, error: str, status: int, out: str = "") -> None:
    found = reason(login, out.encode(), error.encode(), status)
    said = without_host(found.message, ("192.0.2.7", "gpu7"))
    assert said.startswith(row.message), (row, said)
    assert found.advice.startswith(row.advice), (row, found.advice)
    assert "{" not in said + found.advice
    assert "\n" not in said


def test_sudo() -> None:
    login = Login(user="ops")
    for row in SUDO:
        for noise, more in (("", ""), (NOISE, SUDOS)):
            told(row, login, f"{noise}{LOGGED_IN}\n{more}{row.printed}\n", 1)
            assert reason(login, b"", f"{noise}{LOGGED_IN}\n{row.printed}\n".encode(), 1).become


def test_ssh() -> None:
    for row in SSH:
        told(row, Login(user="ops"), row.printed, 255)
        assert not reason(Login(), b"", row.printed.encode(), 255).become


def test_a_login_shell_that_runs_nothing() -> None:
    for row in SHELL:
        told(row, Login(user="ops"), "", 1, out=row.printed)
        told(row, Login(user="ops"), row.printed, 1)


def test_paramiko_and_containers() -> None:
    for row in PARAMIKO:
        told(row, Login(user="ops", kind="paramiko"), row.printed, 255)
    for row in CONTAINER:
        told(row, Login(kind="docker"), row.printed, 125)


def test_a_key_file_that_is_missing_here_is_named() -> None:
    login = Login(user="ops", key="/keys/a", key_trouble="No such file or directory")
    found = reason(login, b"", b"ops@gpu7: Permission denied (publickey).\n", 255)
    assert found.message.endswith(
        "Permission denied (publickey); the key file /keys/a cannot be read: No such file or directory"
    )
    assert found.advice == "correct ansible_ssh_private_key_file, or set ansible_password"


@run_each(
    ("error", "status", "said"),
    [
        ("", -9, "ssh was ended by SIGKILL, on this machine"),
        ("", 137, 'its shell there was killed (SIGKILL): for want of memory ("journalctl -k" tells), or by somebody '
                  'there'),
        ("Connection to 192.0.2.7 closed by remote host.\n", 255, "the connection was cut"),
        (f"{LOGGED_IN}\nConnection to 192.0.2.7 closed by remote host.\n", 255, "the connection was cut"),
        (f"{LOGGED_IN}\n", 143, "its shell there was ended by SIGTERM"),
    ],
)  # fmt: skip
def test_what_was_cut_is_told_as_such(error: str, status: int, said: str) -> None:
    assert reason(Login(user="ops"), b"", error.encode(), status).message == said


def test_noise_alone_is_no_reason() -> None:
    found = reason(Login(user="ops"), b"", f"{NOISE}{LOGGED_IN}\n{SUDOS}".encode(), 1)
    assert found.message == "sudo ended with status 1 without a word"
    traced = f"+ sh -c 'echo {LOGGED_IN} >&2; exec sudo'\n"
    assert not reason(Login(), b"", f"{traced}ssh: connect to host h port 22: refused".encode(), 255).become


def test_what_ansible_says() -> None:
    login = Login(user="ops", sudo="su", kind="ansible")
    body = "Origin: <adhoc 'ansible.builtin.raw' task>\n\n{'action': 'ansible.builtin.raw', 'timeout': 0, [...]\n"
    for line, out, said, advice, become in (
        ("Missing su password", "gpu7 | FAILED | rc=-1 >>\nTask failed: Missing su password\n", "Missing su",
         "set ansible", True),
        ("Incorrect su password", "", "su does not accept ansible_become_password", "correct ansible_become_password",
         True),
        ("Failed to connect to the host via ssh: ssh: connect to host gpu7 port 22: Connection refused", "",
         "ssh: connect to port 22: Connection refused", "check ansible", False),
        ("Action failed: non-zero return code", "gpu7 | FAILED | rc=1 >>\nThis account is currently not available.\n"
         "Warning: Permanently added 'gpu7' (ED25519) to the list of known hosts.\nnon-zero return code\n",
         "This account is currently not available.", "give ops a login shell", False),
    ):  # fmt: skip
        error = f"[ERROR]: Task failed: {line}\n{body}"
        told(Row("", said, advice), login, error, 2, out)
        assert reason(login, out.encode(), error.encode(), 2).become is become
        told(Row("", said, advice), login, "", 2, error + out)


def test_what_the_system_says_of_an_ansible_that_does_not_start() -> None:
    told = b"[Errno 11] Resource temporarily unavailable: '/usr/bin/python3'"
    assert reason(Login(user="ops", sudo="su", kind="ansible"), b"", told, None).message == told.decode()


@run_each(
    ("kind", "error", "said", "advice"),
    [
        (
            "ssh",
            "[Errno 2] No such file or directory: 'ssh'",
            "no ssh client on this machine",
            "apt-get install openssh-client",
        ),
        ("ssh", "[Errno 13] Permission denied: 'ssh'", "ssh of this machine does not start: Permission denied", "PATH"),
        (
            "ssh",
            "[Errno 2] No such file or directory: '/x/ssh'",
            "/x/ssh does not start on this machine",
            "ansible_ssh_executable",
        ),
        ("podman", "[Errno 2] No such file or directory: 'podman'", "no podman on this machine", "install podman"),
        (
            "docker",
            "[Errno 2] No such file or directory: 'docker'",
            "no docker client on this machine",
            "docs.docker.com",
        ),
    ],
)
def test_a_program_that_this_machine_lacks(kind: str, error: str, said: str, advice: str) -> None:
    """Whatever is wrong with the key file, it was never asked for."""
    login = Login(user="ops", kind=kind, key="/k", key_trouble="No such file or directory")
    found = reason(login, b"", error.encode(), None)
    assert said in found.message
    assert advice in found.advice
    assert "/k" not in found.message
    shell = "bash: line 1: [Errno 2] No such file or directory: 'ssh'"
    assert "this machine" not in reason(login, b"", shell.encode(), 1).message


def test_a_full_stop_of_theirs_is_not_followed_by_another_mark() -> None:
    error = Unreached("gpu7", "Host key verification failed.", "look at the host's key")
    assert error.message == "gpu7: Host key verification failed"
