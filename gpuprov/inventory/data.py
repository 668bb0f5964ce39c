"""Ansible's inventory data, which keeps more of what the sources say, and no more hosts than a limit."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData

from gpuprov import reading
from gpuprov.inventory import ranges
from gpuprov.inventory.origin import origin_of
from gpuprov.spec.problem import Origin


class Data(InventoryData):  # type: ignore[misc]
    """Keeps every `gpuprov` that a source sets, in order: Ansible itself keeps only the last one of a group or host."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: dict[tuple[str, str], list[tuple[Origin | None, Any]]] = {}
        self.strange: dict[str, Origin | None] = {}

    def add_host(self, host: str, group: str | None = None, port: int | str | None = None) -> Any:
        """As Ansible's, up to the limit."""
        if len(self.hosts) >= ranges.MOST and host not in self.hosts:
            raise AnsibleError("too many hosts") from reading.Unreadable("too many hosts", f"{ranges.MOST}")
        return super().add_host(host, group, port)

    def set_variable(self, entity: str, varname: str, value: Any) -> None:
        """As Ansible's; remembers `gpuprov`, and names that look like it."""
        if not isinstance(varname, str):
            raise AnsibleError(f"a variable is called {varname}, which is no text")
        super().set_variable(entity, varname, value)
        if varname == "gpuprov":
            kind = "group" if entity in self.groups else "host"
            self.layers.setdefault((kind, str(entity)), []).append((origin_of(varname), value))
        elif varname not in self.strange and strange(varname):
            self.strange[varname] = origin_of(varname)


def strange(name: str) -> bool:
    """Whether a variable's name looks like `gpuprov`, and is not."""
    return name != "gpuprov" and name[:1] in "gG" and _looks_like_ours(name)


def _looks_like_ours(name: str) -> bool:
    from difflib import SequenceMatcher

    bare = name.lower().replace("_", "").replace("-", "")
    return bare == "gpuprov" or (len(name) <= 8 and SequenceMatcher(None, bare, "gpuprov").ratio() >= 0.85)
