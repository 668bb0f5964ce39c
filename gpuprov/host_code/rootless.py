"""A user's own docker configuration, read and written by the user: root follows no link in a home."""

from __future__ import annotations

import pwd
import subprocess
from typing import NamedTuple

from .failed import Failed

PATH = ".config/docker/daemon.json"
READ = """[ ! -e "$1" ] || { [ -f "$1" ] && head -c 1000000 "$1"; }"""
# Every folder in the path belongs to the user, and may be a link to anywhere: so these run as the user, without root's
# rights.
WRITE = """set -eu
umask 022
mkdir -p "${1%/*}"
file=$(readlink -f "$1")
new=$(mktemp "${file%/*}/.daemon.json.XXXXXX")
trap 'rm -f "$new"' EXIT
cat > "$new"
chmod "$(stat -c %a "$file" 2> /dev/null || echo 644)" "$new"
mv -f "$new" "$file"
"""
# --kill-who has been --kill-whom since systemd 252, which takes both.
RELOAD = """systemctl --user is-active --quiet docker.service &&
systemctl --user kill --kill-who=main --signal=HUP docker.service"""
PROGRAMS = "/usr/bin:/bin"


class Account(NamedTuple):
    """A user's account data."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def file(self) -> str:
        return f"{self.home}/{PATH}"


def find_account(name: str) -> Account:
    """Return the user of this name. Raises Failed."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise Failed(f"there is no user {name}") from None
    return Account(name, entry.pw_uid, entry.pw_gid, entry.pw_dir)


def read(user: Account) -> str:
    """Return the text of the user's file; "" if there is none. Raises Failed."""
    done = run_as(user, READ)
    if done.returncode:
        error = done.stderr.decode(errors="replace").strip()
        raise Failed(f"{user.file} cannot be read as {user.name}: {error or 'it is not a file'}")
    return done.stdout.decode(errors="surrogateescape")


def write(user: Account, text: str) -> None:
    """Write this text with the file's present mode. Raises Failed."""
    done = run_as(user, WRITE, text)
    if done.returncode:
        error = done.stderr.decode(errors="replace").strip()
        raise Failed(f"{user.file} cannot be written as {user.name}: {error or done.returncode}")


def reload(name: str) -> bool:
    """Have a running daemon of the user read it; return whether there is one."""
    # Done as the user, since no systemd before 248 reaches a user's own from outside (systemctl --user
    # --machine=USER@.host).
    return run_as(find_account(name), RELOAD).returncode == 0


def run_as(user: Account, script: str, text: str = "") -> subprocess.CompletedProcess[bytes]:
    dropped = [f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]
    return subprocess.run(
        ["setpriv", *dropped, "timeout", "60", "sh", "-c", script, "sh", user.file],
        input=text.encode("utf-8", "surrogateescape"),
        env={"PATH": PROGRAMS, "XDG_RUNTIME_DIR": f"/run/user/{user.uid}"},
        cwd="/",
        capture_output=True,
        check=False,
    )
