"""A locale that Ansible works in: UTF-8, and one that is there. In any other it ends at once (`initialize_locale` in ansible/cli).

Many a script says LC_ALL=C, and ssh brings the locale of the machine that somebody comes from (SendEnv LC_*), which may not be there.
"""

from __future__ import annotations

import locale
import os

WANTED = ("C.UTF-8", "C.utf8", "en_US.UTF-8")


def settle() -> None:
    """Have this process, and what it starts, in such a locale, where the environment names none and the system has one."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        if not _is_utf8(""):
            found = next(filter(_is_utf8, WANTED), "")
            os.environ |= {"LC_ALL": found} if found else {}
    finally:
        locale.setlocale(locale.LC_ALL, before)


def _is_utf8(name: str) -> bool:
    try:
        locale.setlocale(locale.LC_ALL, name)
        return (locale.getlocale()[1] or "").lower() in ("utf-8", "utf8")
    except (locale.Error, ValueError):
        return False
