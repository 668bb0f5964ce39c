"""A mig-parted file as it stands on the controller, or as the ConfigMap of the GPU operator's MIG manager that holds
it."""

import os
from collections.abc import Mapping
from functools import lru_cache

from gpuprov.core import safe_parse

# The MIG manager's key in its ConfigMap:
# https://github.com/NVIDIA/gpu-operator/blob/main/assets/state-mig-manager/0400_configmap.yaml
KEY = "config.yaml"


def read_parted(path: str) -> object:
    """Return the content of a file, out of its ConfigMap if it is in one. Raises OSError and ValueError."""
    known = os.stat(path)
    return _load(path, known.st_mtime_ns, known.st_size)


@lru_cache(maxsize=8)
def _load(path: str, _changed: int, _size: int) -> object:
    read = safe_parse.parse_yaml(safe_parse.read_contents(path), safe_parse.FILE)
    if not isinstance(read, Mapping) or read.get("kind") != "ConfigMap":
        return read
    data = read.get("data")
    texts = list(data.values()) if isinstance(data, Mapping) else []
    text = data.get(KEY, texts[0] if len(texts) == 1 else None) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        raise ValueError(f"its ConfigMap has no {KEY}, the key of a mig-parted file")
    return safe_parse.parse_yaml(text, safe_parse.FILE)
