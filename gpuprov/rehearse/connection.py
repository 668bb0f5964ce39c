"""Connection to the simulated hosts, and nothing else: no variable, setting or file that reaches real hosts is used."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpuprov.plan.read import Pair
from gpuprov.rehearse.real_hosts import put_into_own_domain
from gpuprov.rehearse.shape import Shape
from gpuprov.simulate.disk_files import OWN_ADDRESS
from gpuprov.simulate.host import SimulatedHost
from gpuprov.simulate.inventory import SSH_ARGS
from gpuprov.spec.model import RawHost, select_site_variables


def pair_of(shape: Shape, host: SimulatedHost) -> Pair:
    """Return the shape's spec on the simulated host: of the real host's variables only those that roles read are
    left."""
    connection: dict[str, object] = {
        **select_site_variables(shape.raw.connection),
        "ansible_connection": "ssh",
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": host.user,
        "ansible_ssh_private_key_file": host.key_file,
        # -F none: neither the user's nor the system's ssh configuration, with its proxies, is read; ssh(1).
        "ansible_ssh_common_args": f"-F none -o IdentitiesOnly=yes -o IdentityAgent=none {SSH_ARGS}",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_become": host.user != "root",
    }
    raw = RawHost(name=host.name, groups=shape.raw.groups, values=shape.raw.values, connection=connection)
    is_machine = shape.description is not None and shape.description.kind == "machine"
    spec = put_into_own_domain(shape.spec, OWN_ADDRESS if is_machine else host.address)
    return raw, msgspec.structs.replace(spec, name=host.name, origins={})


@contextmanager
def ignore_user_settings() -> Iterator[None]:
    """Ignore the user's Ansible environment and ansible.cfg inside: they describe how real hosts are reached."""
    saved = {name: value for name, value in os.environ.items() if name.startswith("ANSIBLE_")}
    with tempfile.TemporaryDirectory(prefix="gpuprov-rehearse-") as folder:
        empty = Path(folder) / "ansible.cfg"
        empty.write_text("[defaults]\n", encoding="utf-8")
        for name in saved:
            del os.environ[name]
        os.environ["ANSIBLE_CONFIG"] = str(empty)
        try:
            yield
        finally:
            del os.environ["ANSIBLE_CONFIG"]
            os.environ.update(saved)
