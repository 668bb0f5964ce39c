"""vgpu_guest: what the role brings about."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.vgpu_guest.desired import DESIRED, HEADER
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest, differences
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.gpus.vgpu import GRIDD, parse_gridd
from gpuprov.spec.model import HostSpec
from tests.capabilities import contexts
from tests.capabilities.vgpu_host import CHECKS, DIRECTORY, NAME, gridd, token_row

CONFIG = "/etc/nvidia/gridd.conf"
FILE = VgpuGuest(token_file=f"/secrets/{NAME}")
TWO = token_row() + token_row(name="client_configuration_token_old.tok")


def made(block: VgpuGuest | None = None, text: str = "") -> dict[str, Any]:
    host = contexts.spec(vgpu_guest=block or VgpuGuest())
    return dict(DESIRED.make(contexts.context("vgpu_guest", host, {GRIDD.name: text or gridd()})))


def test_gridd_conf_has_what_is_not_gridds_default() -> None:
    assert made()["files"] == {CONFIG: f"{HEADER}FeatureType=1\n"}
    asked = VgpuGuest(licensing="server", server_address="licences.example", feature_type="vws", enable_ui=True)
    text = made(asked)["files"][CONFIG].removeprefix(HEADER)
    assert {"ServerAddress=licences.example", "FeatureType=2", "EnableUI=TRUE"} <= set(text.splitlines())
    assert "ServerPort" not in text


def test_what_is_written_has_no_difference() -> None:
    for block in (VgpuGuest(), VgpuGuest(feature_type="vcs", token_directory="/etc/tokens", license_interval=60)):
        lines = made(block)["files"][CONFIG].removeprefix(HEADER).splitlines()
        assert differences(block, parse_gridd(Output(gridd(*lines))).settings) == []


def test_a_token_of_the_controllers_is_alone_on_the_host() -> None:
    found = made(FILE, gridd(tokens=TWO))
    place = f"{DIRECTORY}/{NAME}"
    assert found["tasks"]["folder"] == {"path": DIRECTORY}
    assert found["tasks"]["token"] == {"src": FILE.token_file, "dest": place, "mode": "0744"}
    assert found["tasks"]["own"] == []
    assert found["absent"] == [f"{DIRECTORY}/client_configuration_token_old.tok"]
    assert found["tasks"]["unit"]["files"] == [CONFIG, DIRECTORY]


def test_tokens_of_the_host_get_their_mode_and_stay() -> None:
    found = made(VgpuGuest(token_mode="0600"), gridd(tokens=TWO))
    assert (found["absent"], "token" in found["tasks"]) == ([], False)
    assert [one["mode"] for one in found["tasks"]["own"]] == ["0600"] * 2
    elsewhere = made(VgpuGuest(token_directory="/etc/other"), gridd(tokens=TWO))
    assert elsewhere["tasks"]["own"] == []


def test_without_tokens_there_is_nothing_of_them() -> None:
    found = made(VgpuGuest(licensing="provider"), gridd(tokens=TWO))
    assert not {"folder", "token"} & set(found["tasks"])
    assert (found["absent"], found["tasks"]["own"], found["tasks"]["unit"]["files"]) == ([], [], [CONFIG])


def test_a_driver_without_a_unit_is_refused_before_anything_changes() -> None:
    text = gridd(unit=("not-found", "inactive", ""))
    ctx = Context(HostSpec(name="vm1"), VgpuGuest(), Facts({"gridd": Output(text)}))
    outcome = CHECKS["vgpu_guest.driver"].run(ctx)
    assert (outcome.status, "does not exist, although /usr/bin/nvidia-gridd does" in outcome.found) == ("fail", True)


def test_tokens_are_looked_for_where_the_spec_has_them(tmp_path: Path) -> None:
    """gridd.conf may still name another folder, or none."""
    (tmp_path / NAME).write_text("a.b.c\n")
    spec = HostSpec(name="vm1", capabilities={"vgpu_guest": VgpuGuest(token_directory=str(tmp_path))})
    done = subprocess.run(["sh", "-c", GRIDD.of(spec).script], capture_output=True, text=True, check=True)
    assert [one.path for one in parse_gridd(Output(done.stdout)).tokens] == [str(tmp_path / NAME)]
    bare = subprocess.run(
        ["sh", "-c", GRIDD.of(HostSpec(name="vm1")).script], capture_output=True, text=True, check=True
    )
    assert str(tmp_path) not in bare.stdout
