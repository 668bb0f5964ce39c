"""mps: what the role brings about."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.mps.clients import drop_in
from gpuprov.capabilities.mps.desired import DESIRED, TMPFILES, client, profile
from gpuprov.capabilities.mps.fragment import Group, Mps
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog import mps as catalogue
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.mps import USER, parse_user
from gpuprov.host_code.files import PYTHON
from gpuprov.host_code.mps import devices
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities import mps_host as host
from tests.capabilities.asking import facts, good
from tests.capabilities.mps_programs import GPUS
from tests.rows import run_each

UNIT = "/etc/systemd/system/gpuprov-mps@.service"
NO_PROGRAM = {"mps": "shm|1\n" + host.gpus()}


def made(block: Mps | None = None, run: frozenset[str] | None = None, more: dict[str, Fragment] | None = None, /,
         **changed: str) -> dict[str, Any]:  # fmt: skip
    """What the role gets, worked out by the probes that are declared for it and no others."""
    wanted = block or Mps()
    told = {**good(), **host.PROBES, **changed}
    known = facts(**{probe.name: told[probe.name] for probe in DESIRED.probes})
    spec = HostSpec(
        name="gpu1", gpu=GpuSpec(model="H100-SXM5-80GB", count=2), capabilities={**(more or {}), "mps": wanted}
    )
    values: dict[str, Any] = dict(DESIRED.make(Context(spec, wanted, known, run)))
    return {**values, **values["tasks"]["daemons"]}


def test_a_host_that_has_the_programs() -> None:
    found = made()
    assert (found["install"], found["coming"], found["absent"]) == ([], False, [catalogue.PROFILE])
    assert set(found["files"]) == {catalogue.STATE, TMPFILES}
    assert json.loads(found["files"][catalogue.STATE]) == json.loads(json.dumps(found["wanted"]))
    assert found["files"][TMPFILES].endswith("x /tmp/nvidia-mps\n")
    lines = found["units"][UNIT].splitlines()
    before = {unit for line in lines if line.startswith("Before=") for unit in line.partition("=")[2].split()}
    assert before >= {
        "docker.service",
        "containerd.service",
        "crio.service",
        "kubelet.service",
        "k3s.service",
        "slurmd.service",
    }
    assert f"ExecStart={PYTHON} -B -m mps start %i" in lines


def test_a_host_without_them() -> None:
    assert made(**NO_PROGRAM)["install"] == ["nvidia-cuda-mps=535.261.03-1"]
    assert made(Mps(scope="none"), **NO_PROGRAM)["install"] == []
    driver: dict[str, Fragment] = {"nvidia_driver": NvidiaDriver()}
    assert made(None, None, driver, **NO_PROGRAM)["install"] == [], "they come with the driver"


def test_whether_the_devices_are_still_to_come() -> None:
    driver: dict[str, Fragment] = {"nvidia_driver": NvidiaDriver()}
    assert made(None, None, driver)["coming"] is True
    assert made(None, frozenset({"mps", "nvidia_driver"}), driver)["coming"] is True
    assert made(None, frozenset({"mps"}), driver)["coming"] is False, "in place already"


def test_the_program_understands_what_it_is_told() -> None:
    block = Mps(
        scope="groups",
        groups=(Group(gpus=("0000:3b:00.0",), name="left"), Group(gpus=(0,))),
        pinned_memory_limit={"all": "8G"},
        priority="below-normal",
        compute_mode="default",
    )
    wanted = json.loads(json.dumps(made(block)["wanted"]))
    assert [(one["name"], one["gpus"][0]["index"]) for one in devices.list_daemons(wanted, GPUS)] == [
        ("left", 1),
        ("group1", 0),
    ]
    assert (wanted["exclusive"], wanted["priority"], wanted["memory"]) == (False, "1", {"all": "8G"})
    assert made(Mps(scope="mig"))["wanted"]["exclusive"] is False
    assert made()["wanted"]["count"] == 2


def test_login_shells(tmp_path: Path) -> None:
    """The shell reads the daemon's file, and says nothing without it."""
    block = Mps(scope="groups", groups=(Group(gpus=(0,), name="left"),), profile=True)
    assert catalogue.PROFILE in made(block)["files"]
    file = tmp_path / "left.env"
    (tmp_path / "profile.sh").write_text(profile(block).replace(f"{catalogue.RUNTIME}/left.env", str(file)))
    ask = f'. {tmp_path}/profile.sh; env | grep -c "^CUDA_MPS_PIPE_DIRECTORY=/x$"'
    said = [
        subprocess.run(["sh", "-c", ask], capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    ]
    file.write_text("CUDA_MPS_PIPE_DIRECTORY=/x\n")
    said.append(
        subprocess.run(["sh", "-c", ask], capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    )
    assert [(one.stdout, one.stderr) for one in said] == [("0\n", ""), ("1\n", "")]


@run_each(
    ("block", "name", "unit"),
    [
        (Mps(), "host", "gpuprov-mps@host.service"),
        (Mps(scope="gpu", static_partitions=(4, 2)), "gpu0-1", "gpuprov-mps@gpu0.service"),
        (Mps(scope="mig"), "gpu0-mig4", "gpuprov-mps@gpu0-mig4.service"),
        (Mps(scope="mig", static_partitions=(2,)), "gpu0-mig4-0", "gpuprov-mps@gpu0-mig4.service"),
    ],
)
def test_a_service_starts_behind_its_daemon(block: Mps, name: str, unit: str) -> None:
    assert f"After={unit}\nWants={unit}\n" in client(block, name)
    assert f"EnvironmentFile=/run/gpuprov/mps/{name}.env\n" in client(block, name)


def test_services_that_are_clients_no_more() -> None:
    block = Mps(units={"train.service": "host"})
    there = "".join(f"file|{drop_in(unit)}|[Service]\n" for unit in ("train.service", "old.service"))
    found = made(block, mps=host.host() + there)
    assert drop_in("train.service") in found["files"]
    assert found["absent"] == [catalogue.PROFILE, drop_in("old.service")]


def test_the_users_number_is_read_of_the_host() -> None:
    """By the script that goes there, for a name that is not a shell word."""
    for name, number in (("root", 0), ("gpuprov-nobody", None), ("x$(id)", None), ("", None)):
        spec = HostSpec(name="gpu1", capabilities={"mps": Mps(user=name)})
        ran = subprocess.run(["sh", "-c", USER.of(spec).script], capture_output=True, text=True, check=False)
        assert parse_user(Output(ran.stdout)) == ({name: number} if name else {})
