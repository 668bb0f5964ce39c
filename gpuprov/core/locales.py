"""A locale that Ansible works in: UTF-8, and installed. In any other it exits at once (`initialize_locale` in
ansible/cli).

Many scripts set LC_ALL=C, and ssh passes on the client's locale (SendEnv LC_*), which may not be installed.
"""

import locale
import os
import sys

WANTED = ("C.UTF-8", "C.utf8", "en_US.UTF-8")


def settle() -> None:
    """Set such a locale for this process and its children, if the environment names none and the system has one."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        if not _is_utf8(""):
            name = next(filter(_is_utf8, WANTED), "")
            os.environ |= {"LC_ALL": name} if name else {}
    finally:
        locale.setlocale(locale.LC_ALL, before)


def _is_utf8(name: str) -> bool:
    try:
        locale.setlocale(locale.LC_ALL, name)
        return (locale.getlocale()[1] or "").lower() in ("utf-8", "utf8")
    except (locale.Error, ValueError):
        return False


def is_plain() -> bool:
    """Return whether standard output takes ASCII only: by its encoding, or because LC_ALL requests it."""
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower()
    return "utf" not in encoding or os.environ.get("LC_ALL") in ("C", "POSIX")
