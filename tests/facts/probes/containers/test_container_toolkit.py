"""Probes of the container toolkit, on what a Debian host printed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.containers import container_toolkit as probe
from tests.facts.probes import captured
from tests.here import program
from tests.rows import run_each

FIRST, SECOND = "GPU-9af89b8e-9679-5c65-9091-95f0cd89b9b1", "GPU-167a4bf9-27c7-5a98-b274-5612fe4eb183"


def test_the_toolkit() -> None:
    found = probe.parse_toolkit(captured("container_toolkit", "debian12"))
    assert found.version == "1.20.1"
    assert found.settings["nvidia-container-runtime"]["mode"] == "cdi"
    assert found.settings["nvidia-container-cli"]["no-cgroups"] is False
    assert (len(found.linked), found.unlinked) == (6, ())


def test_no_toolkit() -> None:
    assert probe.parse_toolkit(Output("")) == probe.Toolkit()


def test_settings_that_cannot_be_read() -> None:
    assert probe.parse_toolkit(Output(" a =\n")).complaint.startswith("not valid TOML")


def test_a_specification() -> None:
    (found,) = probe.parse_specifications(captured("cdi_specifications", "debian12"))
    assert found.path == "/etc/cdi/nvidia.yaml"
    assert found.kind == "nvidia.com/gpu"
    assert found.devices == ("0", "1", SECOND, FIRST, "all")
    assert found.versions == ("535.309.01",)


def test_a_specification_as_json_and_as_older_releases_write_it() -> None:
    text = '@spec /etc/cdi/a.json\n  "kind": "nvidia.com/gpu",\n      "name": "0:1",\n'
    text += '@spec /var/run/cdi/b.yaml\nkind: x/y\n  name: "0"\n'
    found = probe.parse_specifications(Output(text))
    assert [(one.kind, one.devices) for one in found] == [("nvidia.com/gpu", ("0:1",)), ("x/y", ("0",))]


def test_devices() -> None:
    found = probe.parse_devices(captured("gpu_devices", "debian12"))
    assert found == probe.Devices(names=("0", "1"), uuids=(FIRST, SECOND))


def test_mig_devices_stand_for_their_gpu() -> None:
    text = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\n  MIG 1g.10gb     Device  0: (UUID: MIG-x)\n"
        "  MIG 2g.20gb     Device  1: (UUID: MIG-y)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b)\n"
        "GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-c)\n0, Enabled\n1, Disabled\n2, Enabled\n"
    )
    assert probe.parse_devices(Output(text)) == probe.Devices(
        names=("0:0", "0:1", "1"), uuids=("MIG-x", "MIG-y", "GPU-b"), parents=("0", "GPU-a", "2", "GPU-c")
    )


def test_nvidia_smi_that_complains_or_is_missing() -> None:
    assert (
        probe.parse_devices(Output("NVIDIA-SMI has failed because\nit\n")).complaint
        == "NVIDIA-SMI has failed because it"
    )
    assert probe.parse_devices(Output("")).complaint == "nvidia-smi is not installed"


def test_users() -> None:
    found = probe.parse_users(captured("rootless_users", "debian12"))
    assert set(found) == {"gpuadmin"}
    user = found["gpuadmin"]
    assert (user.home, user.subordinate, user.lingers) == ("/home/gpuadmin", True, False)
    assert user.daemon
    assert '"log-driver": "journald"' in user.daemon
    assert probe.parse_users(Output("@user a|/a|0|1|0\n"))["a"].daemon is None


def test_programs_that_containers_can_be_run_with_are_looked_for(tmp_path: Path) -> None:
    program(tmp_path, "crun", "true")
    environment = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", probe.TOOLKIT.script], capture_output=True, text=True, env=environment, check=True
    )
    assert str(tmp_path / "crun") in probe.parse_toolkit(Output(done.stdout)).runners


GIDS = """\
---
cdiVersion: 0.7.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    additionalGids:
    - 44
containerEdits:
  additionalGids: [992]
"""


@run_each(
    ("text", "version", "fields"),
    [
        (GIDS, "0.7.0", ("additionalGids",)),
        ('{\n  "cdiVersion": "1.1.0",\n  "kind": "nvidia.com/gpu", "netDevices": [],\n  "intelRdt": {}\n}', "1.1.0",
         ("intelRdt", "netDevices")),
        ("cdiVersion: '0.5.0'\nkind: nvidia.com/gpu\n", "0.5.0", ()),
        ("kind: nvidia.com/gpu\ncontainerEdits: {env: [additionalGids=1]}\n", "", ()),
    ],
)  # fmt: skip
def test_what_a_reader_of_a_specification_must_know(
    tmp_path: Path, text: str, version: str, fields: tuple[str, ...]
) -> None:
    file = tmp_path / "nvidia.yaml"
    file.write_text(text)
    script = probe.CDI.script.replace("/etc/cdi/* /var/run/cdi/*", str(file))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    (found,) = probe.parse_specifications(Output(done.stdout))
    assert (found.version, found.fields) == (version, fields)


def test_features_that_the_refresh_unit_is_told_of() -> None:
    for line, flags in (("a,b", ("a", "b")), ('"a, b"', ("a", "b")), ("", ()), ("'a'", ("a",))):
        assert probe.parse_toolkit(Output(f"version NVIDIA 1.20.1\nflags {line}\n")).flags == flags


def test_what_podman_answers() -> None:
    complaint = captured("cdi_answers", "podman-4.3.1-version").text
    assert probe.parse_answers(Output(complaint)) == {
        "podman": 'failed to load CDI Spec: invalid CDI Spec: invalid version "0.6.0"'
    }
    field = captured("cdi_answers", "podman-4.3.1-field")
    assert probe.parse_answers(field)["podman"].endswith('json: unknown field "additionalGids"')
    assert probe.parse_answers(Output("")) == {}
    assert probe.parse_answers(Output("podman Error: CDI devices: no such runtime\n")) == {}
    assert probe.parse_answers(Output(complaint.splitlines()[0])) == {}, "it ended before it was asked for devices"
