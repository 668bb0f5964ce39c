"""What roles have beside their own files: Ansible modules, modules that controller and hosts share, and NVIDIA's NVML binding."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gpuprov import assets, onhost
from gpuprov.capabilities import BY_NAME
from gpuprov.errors import GpuprovError

DISTRIBUTIONS = {"pynvml": "nvidia-ml-py"}
"""Where another's module comes from; nvidia-ml-py is one file of pure Python, under the BSD licence that stands at its top."""


def role_files(name: str) -> dict[str, Path]:
    """The files of a role: by their path inside the role, where they are on this machine."""
    own = assets.files(assets.root() / "roles" / name)
    return dict(sorted({**own, **carried(name)}.items()))


def plugin_files() -> dict[str, Path]:
    """Modules and action plugins of gpuprov, and what they import on hosts, by their paths beside a playbook.

    Ansible looks for plugins in folders of these names beside the playbook, whatever its configuration says.
    """
    plugins = assets.root() / "plugins"
    folders = {
        "library": plugins / "modules",
        "action_plugins": plugins / "action",
        "module_utils/gpuprov_onhost": Path(str(onhost.__file__)).parent,
    }
    return {
        f"{beside}/{name}": file for beside, folder in folders.items() for name, file in assets.files(folder).items()
    }


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
