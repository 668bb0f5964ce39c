"""What a role has beside its own files: modules that the controller and the hosts share, and NVIDIA's NVML binding."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gpuprov import assets, mig_fit, mig_layout, nccl_conf
from gpuprov.errors import GpuprovError

BINDING = "pynvml"
"""The module of nvidia-ml-py: one file of pure Python, under the BSD licence that stands at its top."""


def role_files(name: str) -> dict[str, Path]:
    """The files of a role: by their path inside the role, where they are on this machine."""
    folder = assets.root() / "roles" / name
    own = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return dict(sorted({**{str(path.relative_to(folder)): path for path in own}, **carried(name)}.items()))


def carried(name: str) -> dict[str, Path]:
    """What comes from elsewhere. Raises GpuprovError where the binding is missing from this installation."""
    if name == "rdma":
        return {"files/nccl_conf.py": Path(str(nccl_conf.__file__))}
    if name != "mig":
        return {}
    shared = (Path(str(module.__file__)) for module in (mig_layout, mig_fit))
    return {f"files/{path.name}": path for path in (*shared, _binding())}


def _binding() -> Path:
    found = importlib.util.find_spec(BINDING)
    if found is None or not found.origin:
        raise GpuprovError(f"the Python module {BINDING} is missing", "reinstall gpuprov, or: pip install nvidia-ml-py")
    return Path(found.origin)
