"""The location of roles, playbooks and plugins: inside the installed package, or at the root of a checkout."""

from functools import cache
from pathlib import Path

from gpuprov.core.errors import GpuprovError


@cache
def root() -> Path:
    """Return the folder that holds `roles/`, `playbooks/` and `plugins/`. Raises GpuprovError if the installation is
    broken."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_ansible", package.parent):
        if all((folder / name).is_dir() for name in ("roles", "playbooks", "plugins")):
            return folder
    raise GpuprovError("roles, playbooks or plugins are missing from this installation", "reinstall gpuprov")


def files(folder: Path) -> dict[str, Path]:
    """Return the files below a folder, by relative path, without bytecode caches."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path for path in paths}
