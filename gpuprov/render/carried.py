"""What a role has beside its own files: modules that the controller and the hosts share, and NVIDIA's NVML binding."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gpuprov import assets
from gpuprov.capabilities import BY_NAME
from gpuprov.errors import GpuprovError

DISTRIBUTIONS = {"pynvml": "nvidia-ml-py"}
"""Where another's module comes from; nvidia-ml-py is one file of pure Python, under the BSD licence that stands at its top."""


def role_files(name: str) -> dict[str, Path]:
    """The files of a role: by their path inside the role, where they are on this machine."""
    folder = assets.root() / "roles" / name
    own = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return dict(sorted({**{str(path.relative_to(folder)): path for path in own}, **carried(name)}.items()))


def carried(name: str) -> dict[str, Path]:
    """What comes from elsewhere. Raises GpuprovError where a module is missing from this installation."""
    paths = map(_file, BY_NAME[name].carried)
    return {f"files/{path.name}": path for path in paths}


def _file(module: str) -> Path:
    found = importlib.util.find_spec(module)
    if found is None or not found.origin:
        hint = f", or: pip install {DISTRIBUTIONS[module]}" if module in DISTRIBUTIONS else ""
        raise GpuprovError(f"the Python module {module} is missing", f"reinstall gpuprov{hint}")
    return Path(found.origin)
