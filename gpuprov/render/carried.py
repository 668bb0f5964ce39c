"""Files carried by roles beside their own: Ansible modules, modules that controller and hosts share, and NVIDIA's NVML
binding."""

import importlib.util
from pathlib import Path

from gpuprov import host_code
from gpuprov.capabilities import BY_NAME
from gpuprov.core import assets
from gpuprov.core.errors import GpuprovError

# Third-party modules with their packages; nvidia-ml-py is one file of pure Python, under the BSD licence at its top.
DISTRIBUTIONS = {"pynvml": "nvidia-ml-py"}


def role_files(name: str) -> dict[str, Path]:
    """Return the files of a role: the path inside the role, and the location on this machine."""
    own = assets.files(assets.root() / "roles" / name)
    return dict(sorted({**own, **carried(name)}.items()))


def plugin_files() -> dict[str, Path]:
    """Return gpuprov's modules and action plugins, and their imports on hosts, by path beside a playbook."""
    # Ansible looks for plugins in folders of these names beside the playbook, whatever its configuration says.
    plugins = assets.root() / "plugins"
    folders = {
        "library": plugins / "modules",
        "action_plugins": plugins / "action",
        "module_utils/gpuprov_host_code": Path(str(host_code.__file__)).parent,
    }
    return {
        f"{beside}/{name}": file for beside, folder in folders.items() for name, file in assets.files(folder).items()
    }


def carried(name: str) -> dict[str, Path]:
    """Return the carried files. Raises GpuprovError if a module is missing from this installation."""
    paths = map(_find_file, BY_NAME[name].carried)
    return {f"files/{path.name}": path for path in paths}


def _find_file(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin:
        fix = f", or: pip install {DISTRIBUTIONS[module]}" if module in DISTRIBUTIONS else ""
        raise GpuprovError(f"the Python module {module} is missing", f"reinstall gpuprov{fix}")
    return Path(spec.origin)
