"""Folders for data that can be fetched again, of the user who runs Ansible."""

from __future__ import annotations

import os
from typing import Mapping


def caches(environment: Mapping[str, str]) -> str:
    """$XDG_CACHE_HOME, else ~/.cache. One that is no absolute path is passed over, as its specification says:
    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    base = environment.get("XDG_CACHE_HOME", "")
    return base if os.path.isabs(base) else os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".cache")
