"""Where the roles and playbooks are: inside the installed package, or at the root of a checkout."""

from __future__ import annotations

from pathlib import Path

from gpuprov.errors import GpuprovError


def root() -> Path:
    """The folder that holds `roles/` and `playbooks/`. Raises GpuprovError if the installation is broken."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_ansible", package.parent):
        if (folder / "roles").is_dir() and (folder / "playbooks").is_dir():
            return folder
    raise GpuprovError("roles and playbooks are missing from this installation", "reinstall gpuprov")
