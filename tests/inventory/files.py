"""Inventory files for tests, written into the current folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpuprov.inventory import load
from gpuprov.spec.model import RawHost

GOOD = """\
all:
  vars:
    gpuprov:
      nvidia_driver: {version: "535", kernel_modules: proprietary}
  children:
    training:
      hosts:
        gpu01: {ansible_host: 192.0.2.1}
        gpu02: {ansible_host: 192.0.2.2}
"""


def lay(files: Mapping[str, str | bytes]) -> None:
    """Write the files; one whose name ends in `.sh` or `.py` is made executable."""
    for name, content in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if path.suffix in (".sh", ".py"):
            path.chmod(0o755)


def read(text: str, **more: str) -> dict[str, RawHost]:
    """The hosts of an inventory of this text, beside files of variables (`group_vars__all`)."""
    lay({"inventory.yaml": text})
    lay({name.replace("__", "/") + ".yml": content for name, content in more.items()})
    return {host.name: host for host in load(["inventory.yaml"]).hosts}


def locked(text: str, password: str = "hunter2") -> str:
    """The text as ansible-vault encrypts it."""
    from ansible.parsing.vault import VaultLib, VaultSecret

    return bytes(VaultLib([("default", VaultSecret(password.encode()))]).encrypt(text)).decode()


def indented(text: str, spaces: int) -> str:
    """The text as the body of a YAML block scalar."""
    return "".join(" " * spaces + line + "\n" for line in text.splitlines())
