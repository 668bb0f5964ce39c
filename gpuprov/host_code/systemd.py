"""systemd of this host, through systemctl."""

from __future__ import annotations

import subprocess

# Folder of gpuprov's units and drop-ins: systemd has to reload them when they change.
FILES = "/etc/systemd/system/"

# Folder of the site's settings of systemd itself.
SETTINGS = "/etc/systemd/system.conf.d/"


def systemctl(*words: str) -> tuple[int, str, str]:
    """Return exit status, output and errors of systemctl, as text."""
    done = subprocess.run(["systemctl", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode, done.stdout.decode(errors="replace").strip(), done.stderr.decode(errors="replace").strip()


def is_active(unit: str) -> bool:
    return systemctl("is-active", "--quiet", "--", unit)[0] == 0


def show(unit: str, name: str) -> str:
    """Return a property of the unit; for a pattern a line for each loaded unit that matches."""
    return systemctl("show", "-p", name, "--value", "--", unit)[1]
