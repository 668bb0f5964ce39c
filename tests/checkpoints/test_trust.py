"""A checkpoint is what a host says: it sends this machine to no file and to no other host."""

from __future__ import annotations

from typing import Any

from gpuprov.checkpoints import Back, Refused, trusted
from gpuprov.facts.probes.host.checkpoints import Checkpoint
from gpuprov.spec.model import RawHost
from tests.rows import run_each


def said(values: dict[str, Any], inventory: dict[str, Any]) -> Back | Refused:
    checkpoint = Checkpoint(run="one", at="2026-11-11T09:00:00Z", spec=values)
    return trusted(RawHost(name="gpu1", values=inventory), Back(checkpoint, values))


STOLEN: tuple[dict[str, Any], ...] = (
    {"nvidia_driver": {"source": "runfile", "runfile": {"file": "/root/.ssh/id_ed25519"}}},
    {"nvidia_driver": {"signing": {"key_file": "/etc/ssl/private/site.key"}}},
    {"nvidia_driver": {"build_host": "another"}},
    {"vgpu_guest": {"token_file": "/srv/client_configuration_token_1.tok"}},
    {"mig": {"config_file": "/etc/shadow"}},
    {"rdma": {"nccl": {"topo_source": "/etc/shadow"}}},
)


@run_each("values", STOLEN, ids=lambda values: next(iter(values)))
def test_a_file_or_a_host_that_the_inventory_does_not_name_is_refused(values: dict[str, Any]) -> None:
    refused = said(values, {"nvidia_driver": {}})
    assert isinstance(refused, Refused)
    assert "the inventory does not" in refused.message
    assert isinstance(said(values, values), Back)


def test_not_at_another_place_either() -> None:
    mine = {"nvidia_driver": {"repository": {"key_file": "site.key"}}}
    assert isinstance(said({"nvidia_driver": {"runfile": {"file": "site.key"}}}, mine), Refused)


def test_permissions_are_those_of_the_inventory() -> None:
    found = said(
        {"reboot": "if-needed", "on_failure": "rollback", "nvidia_driver": {"version": "535.1.1"}},
        {"nvidia_driver": {}},
    )
    assert isinstance(found, Back)
    assert found.values == {"nvidia_driver": {"version": "535.1.1"}}
    permitted = said({"nvidia_driver": {}}, {"reboot": "if-needed"})
    assert isinstance(permitted, Back)
    assert permitted.values["reboot"] == "if-needed"
