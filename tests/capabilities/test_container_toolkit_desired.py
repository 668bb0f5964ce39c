"""container_toolkit: what the role brings about."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.capabilities.answers import HEADER, STARTING
from gpuprov.capabilities.container_toolkit.desired import DESIRED, DROP_IN, RULE
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.catalog.container_toolkit import PACKAGES
from gpuprov.host_code import sources
from gpuprov.rules.cluster_engines import SETTINGS
from tests.capabilities import contexts
from tests.capabilities.toolkit_host import (
    CLOCK,
    GOOD,
    OLD,
    VERSION,
    containerd,
    docker,
    index,
    k3s,
    microk8s,
    packages,
    podman,
    toolkit,
)
from tests.rows import run_each

REPOSITORY: dict[str, object] = {"container_toolkit_repository": "https://mirror.example/toolkit stable main extra",
              "container_toolkit_repository_key": "/keys/toolkit.asc"}  # fmt: skip
BLOCK: sources.Source = {"name": "container-toolkit", "of": "container_toolkit_repository",
                         "url": "https://mirror.example/toolkit",
         "suite": "stable", "components": ["main", "extra"], "key_file": "/keys/toolkit.asc", "key_url": "",
         "fingerprint": "", "signed": "index"}  # fmt: skip
SOURCES = "@arch amd64\n@machine x86_64\n@end\n"
EL = {"os_release": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n'}
THERE = {"container_toolkit": toolkit(OLD), "packages": packages(OLD)}


def made(
    block: ContainerToolkit | None = None, site: dict[str, object] | None = None, /, **changed: Any
) -> dict[str, Any]:
    """What the role gets, worked out by the probes that are declared for it and no others."""
    host = contexts.spec(site=site, container_toolkit=block or ContainerToolkit())
    texts = {**GOOD, "repositories": SOURCES, **changed}
    values: dict[str, Any] = dict(DESIRED.make(contexts.context("container_toolkit", host, texts)))
    tasks = values["tasks"]
    engines = tasks.get("register", {"names": [], "drop_ins": None})
    shown = {"engines": engines["names"], "drop_ins": engines["drop_ins"]}
    return {**values, **shown, "settings": tasks.get("settings", {}).get("argv", [])}


def test_a_host_that_has_it_gets_nothing_new() -> None:
    found = made()
    assert (found["install"], found["settings"], found["later"]) == ([], [], {})
    assert (found["hold"], found["release"]) == (list(PACKAGES), [])
    assert found["engines"] == ["docker", "crio"]
    assert found["drop_ins"] is True


STARTED = ("docker.service", "crio.service")
AT_BOOT = {catalogue.UDEV_RULE: RULE, catalogue.REFRESH_DROP_IN: DROP_IN}
ROWS: list[tuple[str, ContainerToolkit, dict[str, Any], dict[str, Any]]] = [
    ("all four, where there is none", ContainerToolkit(), {"packages": "", "container_toolkit": toolkit("")},
     {"install": [f"{name}={VERSION}-1" for name in PACKAGES], "drop_ins": True}),
    ("all four, where one has moved", ContainerToolkit(version=VERSION),
     {"packages": packages(libnvidia_container1=OLD)},
     {"install": [f"{name}={VERSION}-1" for name in PACKAGES]}),
    ("a downgrade, and what goes with it", ContainerToolkit(version=OLD), {},
     {"install": [f"{name}={OLD}-1" for name in PACKAGES], "drop_ins": False, "on": [*catalogue.OWN_UNITS, *STARTED],
      "off": [],
      "lines": [], "absent": [catalogue.REFRESH_DROP_IN, *SETTINGS.values()]}),
    ("released", ContainerToolkit(hold=False), {}, {"hold": [], "release": list(PACKAGES), "install": []}),
    ("what is asked for, and has runtimes", ContainerToolkit(runtimes=("podman", "containerd")), {},
     {"engines": ["containerd"]}),
    ("none", ContainerToolkit(), {"container_engines": CLOCK + podman()}, {"engines": []}),
    ("containerd is left to docker", ContainerToolkit(), {"container_engines": CLOCK + docker()},
     {"engines": ["docker"]}),
    ("k3s is told", ContainerToolkit(runtimes=("k3s",), default_runtime=True), {"container_engines": CLOCK + k3s()},
     {"engines": [], "files": {**AT_BOOT, SETTINGS["k3s"]: f"{HEADER}default-runtime: nvidia\n"}}),
    ("k3s needs not to be told", ContainerToolkit(), {"container_engines": CLOCK + k3s()},
     {"files": AT_BOOT, "absent": [*(f"/etc/systemd/system/{name}" for name in catalogue.OWN_UNITS),
                                   *SETTINGS.values()]}),
    ("k3s is told otherwise than by the site", ContainerToolkit(),
     {"container_engines": CLOCK + k3s(settings={"config.yaml": "default-runtime: nvidia\n"})},
     {"files": {**AT_BOOT, SETTINGS["k3s"]: f"{HEADER}default-runtime: runc\n"}}),
    ("MicroK8s' template", ContainerToolkit(), {"container_engines": CLOCK + microk8s()}, {"engines": ["microk8s"]}),
]  # fmt: skip


@run_each(("name", "block", "changed", "wanted"), ROWS, ids=[row[0] for row in ROWS])
def test_what_is_brought_about(
    name: str, block: ContainerToolkit, changed: dict[str, Any], wanted: dict[str, Any]
) -> None:
    found = made(block, **changed)
    assert {key: found[key] for key in wanted} == wanted, name


def off(engine: str, starter: str = "") -> str:
    """An engine that runs, and that a boot does not start by itself."""
    unit = engine.replace("|enabled|", "|disabled|")
    return unit.replace("@file", f"@starter {starter}\n@file", 1) if starter else unit


SOCKET = "@engine podman\n@version podman version 5.2.0\n@unit {}|disabled|0\n"
BOTH = ContainerToolkit(runtimes=("docker", "containerd"))
BOOTS: list[tuple[str, ContainerToolkit, str, list[str]]] = [
    ("disabled", ContainerToolkit(), off(docker()), ["docker.service"]),
    ("masked, whatever its socket", ContainerToolkit(), docker().replace("|enabled|", "|masked|"), ["docker.service"]),
    ("by its socket, without containers", ContainerToolkit(),
     off(docker(info={"ContainersRunning": 0}), "docker.socket"), []),
    ("by its socket, and containers wait", ContainerToolkit(),
     off(docker(info={"ContainersRunning": 2}), "docker.socket"),
     ["docker.service"]),
    ("containerd by docker", BOTH, docker() + off(containerd(), "docker.service"), ["docker.service"]),
    ("containerd by nothing", BOTH, docker() + off(containerd()), ["docker.service", "containerd.service"]),
    ("podman has no daemon", ContainerToolkit(), SOCKET.format("inactive"), []),
    ("podman's socket listens", ContainerToolkit(), SOCKET.format("active"), ["podman.socket"]),
    ("k3s", ContainerToolkit(), k3s(), ["k3s.service"]),
]  # fmt: skip


@run_each(("name", "block", "engines", "units"), BOOTS, ids=[row[0] for row in BOOTS])
def test_an_engine_that_runs_starts_at_a_boot(
    name: str, block: ContainerToolkit, engines: str, units: list[str]
) -> None:
    assert made(block, container_engines=CLOCK + engines)["on"] == [*catalogue.REFRESH_UNITS, *units], name


def test_the_mode_is_set_where_it_is_another_or_cgroups_are_off() -> None:
    found = made(ContainerToolkit(mode="cdi"))["settings"]
    assert found[:3] == ["nvidia-ctk", "--quiet", "config"]
    assert "nvidia-container-runtime.mode=cdi" in found
    bare = ' [nvidia-container-runtime]\n mode = "auto"\n [nvidia-container-cli]\n no-cgroups = true'
    assert "nvidia-container-cli.no-cgroups=false" in made(container_toolkit=toolkit(config=bare))["settings"]


def test_the_toolkits_own_refresh_takes_the_place_of_gpuprovs() -> None:
    found = made(ContainerToolkit(cdi_directory="/etc/cdi"))
    assert found["off"] == list(catalogue.OWN_UNITS)
    assert found["absent"] == [*(f"/etc/systemd/system/{name}" for name in catalogue.OWN_UNITS), *SETTINGS.values()]
    assert set(found["files"]) == {catalogue.UDEV_RULE, catalogue.REFRESH_DROP_IN}
    drop_in = found["files"][catalogue.REFRESH_DROP_IN]
    assert "create-device-nodes" in drop_in
    waiting = " ".join(line.removeprefix("Before=") for line in drop_in.splitlines() if line.startswith("Before="))
    assert set(waiting.split()) == set(STARTING), "podman-restart starts containers with CDI devices, too"
    assert found["on"] == [*catalogue.REFRESH_UNITS, *STARTED]
    keys = {catalogue.OUTPUT_VARIABLE: "/etc/cdi/nvidia.yaml"}
    assert found["lines"] == [{"path": catalogue.REFRESH_ENVIRONMENT, "keys": keys, "made": True}]


def test_what_crio_runs_containers_with_is_named_where_nothing_else_is_found(tmp_path: Path) -> None:
    spare = ("spare /usr/libexec/crio/crun", "spare /usr/libexec/crio/runc")
    both = '["runc", "crun", "/usr/libexec/crio/crun", "/usr/libexec/crio/runc"]'
    block = ContainerToolkit(runtimes=("crio",))
    found = made(block, container_toolkit=toolkit(VERSION, "auto", *spare))["settings"]
    assert found[-1] == "nvidia-container-runtime.runtimes=runc:crun:/usr/libexec/crio/crun:/usr/libexec/crio/runc"
    assert made(block, container_toolkit=toolkit(VERSION, "auto", *spare, "runner /usr/bin/runc"))["settings"] == []
    for strange in ("x|e touch /tmp/y", "a:b", "c;d"):
        text = f' [nvidia-container-runtime]\n mode = "auto"\n runtimes = ["{strange}"]'
        assert made(block, container_toolkit=toolkit(VERSION, "auto", *spare, config=text))["settings"] == []
    before = SWARM + RUNTIME.format('mode = "auto"\nruntimes = ["runc", "crun"]\n')
    text = "".join(f" {line}\n" for line in before.splitlines())
    *command, _ = made(block, **{**THERE, "container_toolkit": toolkit(OLD, "auto", *spare, config=text)})["settings"]
    (tmp_path / "config.toml").write_text(before, encoding="utf-8")
    subprocess.run([*command, tmp_path / "config.toml"], check=True)
    assert (tmp_path / "config.toml").read_text(encoding="utf-8") == before.replace('["runc", "crun"]', both)


SWARM = 'swarm-resource = "DOCKER_RESOURCE_GPU" # ours\n'
CLI = '[nvidia-container-cli]\nroot = "/run/nvidia/driver"\nno-cgroups = {}\n'
RUNTIME = (
    '\n[nvidia-container-runtime] # ours\ndebug = "/dev/null"\n{}[nvidia-container-runtime.modes.csv]\nmode = "x"\n'
)


@run_each(
    ("before", "after"),
    [
        (SWARM + CLI.format("true") + RUNTIME.format('mode = "legacy"\n'),
            SWARM + CLI.format("false") + RUNTIME.format('mode = "auto"\n')),
        (SWARM + RUNTIME.format(""), SWARM + RUNTIME.format("").replace("# ours\n", '# ours\nmode = "auto"\n')),
    ],
)  # fmt: skip
def test_the_mode_is_set_without_a_loss_of_the_sites_settings(tmp_path: Path, before: str, after: str) -> None:
    """nvidia-ctk 1.17.8 comments swarm-resource and root out where they have the values that its own file shows."""
    text = "".join(f" {line}\n" for line in before.splitlines())
    command = made(**{**THERE, "container_toolkit": toolkit(OLD, config=text)})["settings"]
    assert command.pop() == catalogue.CONFIG
    file = tmp_path / "config.toml"
    file.write_text(before, encoding="utf-8")
    subprocess.run([*command, file], check=True)
    assert file.read_text(encoding="utf-8") == after
    newer = made(container_toolkit=toolkit(VERSION, config=text))["settings"]
    assert newer[0] == "nvidia-ctk", "which keeps them since 1.20"


@run_each(
    ("modules", "runs"),
    [
        ("updates/dkms/nvidia-current.ko: kernel/drivers/video.ko\n", True),
        ("extra/nvidia.ko.xz: kernel/drivers/video.ko.xz\n", True),
        ("kernel/nvidia-580srv/nvidia.ko.zst:\n", True),
        ("kernel/drivers/video/fbdev/nvidia/nvidiafb.ko:\n", False),
    ],
)
def test_it_is_refreshed_under_every_name_of_the_module(tmp_path: Path, modules: str, runs: bool) -> None:
    """And in a container, which has no modules of its own: one of a system, as LXC's."""
    lines = made(ContainerToolkit())["files"][catalogue.REFRESH_DROP_IN].splitlines()
    first = lines.index("ExecCondition=")
    (tmp_path / "modules.dep").write_text(modules, encoding="utf-8")
    command = lines[first + 1].removeprefix("ExecCondition=").replace("/lib/modules/%v", str(tmp_path))
    for contained in (False, True):
        detect = tmp_path / "systemd-detect-virt"
        detect.write_text(f"#!/bin/sh\nexit {int(not contained)}\n", encoding="utf-8")
        detect.chmod(0o755)
        path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        ran = subprocess.run(shlex.split(command), check=False, env=path)
        assert (ran.returncode == 0) == (runs or contained)


def test_gpuprovs_own_refresh_where_the_toolkit_has_none() -> None:
    found = made(ContainerToolkit(cdi_directory="/etc/cdi"), **THERE)
    service = found["files"]["/etc/systemd/system/gpuprov-cdi-refresh.service"]
    assert "ExecStart=/usr/bin/nvidia-ctk --quiet cdi generate --output=/etc/cdi/nvidia.yaml\n" in service
    assert "ExecStartPre=-/bin/sh -c '[ -e /dev/nvidia-uvm ] || nvidia-ctk" in service
    assert "%v/modules.dep" in found["files"]["/etc/systemd/system/gpuprov-cdi-refresh.path"]
    assert found["off"] == []
    rule = found["files"][catalogue.UDEV_RULE]
    assert 'RUN+="/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all"' in rule


def test_the_sites_repository_comes_first_and_is_waited_for_until_it_is_there() -> None:
    found = made(None, REPOSITORY, package_index="", packages="")
    assert found["repository"] == BLOCK
    assert "is resolved when apply has added https://mirror.example/toolkit" in found["later"]["told"]
    assert "none of nvidia-container-toolkit" in found["later"]["problem"]
    newer = made(None, REPOSITORY, packages="", package_index=index(OLD))
    assert newer["later"], "what it has is not known yet, though another source has some version"
    text = sources.format_text(BLOCK, "debian")
    place = sources.derive_path("container-toolkit", "debian")
    listed = (
        f"@arch amd64\n@machine x86_64\n@file {place}\n"
        + "".join(f" {line}\n" for line in text.splitlines())
        + "@end\n"
    )
    there = made(None, REPOSITORY, repositories=listed)
    assert (there["later"], there["repository"]) == ({}, BLOCK)


def test_without_a_site_there_is_no_repository_and_suites_are_apts() -> None:
    assert made()["repository"] == {}
    found = made(None, REPOSITORY, **EL)["repository"]
    assert (found["suite"], found["components"]) == ("/", [])


def test_an_image_is_pulled_where_the_site_allows_it_for_engines_that_lack_it() -> None:
    lacks = {"cuda_images": "lacks docker\nlacks containerd\noff\n"}
    pulling = ContainerToolkit(runtimes=("docker", "containerd"), cuda_image="site/cuda:1", cuda_pull=True)
    assert "pull" not in made(msgspec.structs.replace(pulling, cuda_pull=False), None, **lacks)["tasks"]
    assert "pull" not in made(pulling)["tasks"]
    assert made(pulling, None, **lacks)["tasks"]["pull"]["argv"] == [
        *("sh", "-c", "docker pull site/cuda:1 && ctr images pull site/cuda:1")
    ]
