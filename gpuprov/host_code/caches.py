"""Cache folders of the user who runs Ansible, for data that can be fetched again."""

from __future__ import annotations

import os
from typing import Mapping


def get_cache_folder(environment: Mapping[str, str]) -> str:
    """Return $XDG_CACHE_HOME, else ~/.cache."""
    # A relative path is ignored, as its specification says: https://specifications.freedesktop.org/basedir-spec/latest/
    base = environment.get("XDG_CACHE_HOME", "")
    return base if os.path.isabs(base) else os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".cache")
