"""--extra-vars of a worker: connection variables from here, which override the job's. The spec stays that of the
job."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from gpuprov import inventory
from gpuprov.core.errors import GpuprovError
from gpuprov.spec.model import RawHost


def over(
    hosts: Sequence[RawHost],
    given: Sequence[str],
    *,
    vault_password_files: Sequence[str] = (),
    ask_vault_pass: bool = False,
) -> list[RawHost]:
    """Return the hosts with these variables. Raises GpuprovError if they change the spec, SpecError if they are
    wrong."""
    if not given:
        return list(hosts)
    # In a folder of their own: group_vars of the one that somebody happens to work in may be vaulted, and say nothing
    # of them.
    with TemporaryDirectory(prefix="gpuprov-") as folder:
        file = Path(folder) / "hosts.json"
        file.write_text(json.dumps({"all": {"hosts": {raw.name: {} for raw in hosts}}}), encoding="utf-8")
        loaded = inventory.load(
            [str(file)],
            extra_vars=given,
            vault_password_files=vault_password_files,
            ask_vault_pass=ask_vault_pass,
            alone=True,
        )
    if "gpuprov" in loaded.extra:
        raise GpuprovError(
            "--extra-vars: what is asked of the hosts stands in the job, and gpuprov is a variable of it",
            "freeze the inventory with it: gpuprov fleet freeze INVENTORY -e ...",
        )
    connections = {
        host.name: {key: host.connection[key] for key in loaded.extra if key in host.connection}
        for host in loaded.hosts
    }
    return [replace(raw, connection={**raw.connection, **connections[raw.name]}) for raw in hosts]


def check(given: Sequence[str], vault_password_files: Sequence[str] = ()) -> None:
    """Raise for variables that no job could accept, before there is one."""
    over([RawHost(name="host")], given, vault_password_files=vault_password_files)
