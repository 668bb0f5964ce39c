"""container_toolkit: one version, registered in each engine, in force, fresh devices; and nothing of the user's lost."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities import container_toolkit
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.probe.base import Output
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import CHECKS, NO_GPU, PODMAN, Row, facts, judge
from tests.capabilities.asking import GOOD as OTHERS
from tests.capabilities.toolkit_host import (
    CLOCK,
    DAEMON,
    DROP_IN,
    GOOD,
    LATER,
    MAIN,
    MIG,
    OLD,
    VERSION,
    cdi,
    containerd,
    crio,
    docker,
    index,
    packages,
    podman,
    toolkit,
    units,
)

ALL = ContainerToolkit(runtimes=("docker", "containerd", "crio", "podman"))
DOCKER, POD = ContainerToolkit(runtimes=("docker",)), ContainerToolkit(runtimes=("podman",))
DEFAULT = ContainerToolkit(runtimes=("docker",), default_runtime=True)
BARE_DOCKER = {key: value for key, value in DAEMON.items() if key != "runtimes"}


def engines(*texts: str) -> dict[str, Output | str]:
    return {"container_engines": CLOCK + "".join(texts)}


def row(
    name: str,
    check: str,
    fragment: ContainerToolkit | None,
    changed: dict[str, Any],
    status: str,
    *told: str,
    change: str = "",
) -> Any:
    """A row about the good container host; `told`: found, hint, change."""
    identifier = f"container_toolkit.{check}"
    base = {probe.name: GOOD[probe.name] for probe in CHECKS[identifier].probes if probe.name in GOOD}
    found, hint, third = (*told, "", "", "")[:3]
    asked = Row(name, identifier, fragment, {**base, **changed}, status, found, hint, change=change or third)
    return pytest.param(asked, id=f"{check}: {name}")


EXACT = ContainerToolkit(version=OLD)
ROWS = [
    row("as asked", "packages", None, {}, "pass", VERSION),
    row(
        "not there",
        "packages",
        None,
        {"packages": ""},
        "fail",
        "not installed: nvidia-container-toolkit nvidia",
        "gpuprov apply",
    ),
    row(
        "one moved alone",
        "packages",
        None,
        {"packages": packages(libnvidia_container1=OLD)},
        "fail",
        f"libnvidia-container1 {OLD}-1",
    ),
    row(
        "another version",
        "packages",
        EXACT,
        {},
        "fail",
        f"{VERSION}-1",
    ),
    row(
        "half installed",
        "packages",
        None,
        {"packages": packages(state="iU ")},
        "fail",
        "not whole",
        "dpkg --configure -a",
    ),
    row(
        "another nvidia-ctk",
        "packages",
        None,
        {"container_toolkit": toolkit(OLD)},
        "fail",
        f"says {OLD}",
        "comes first",
    ),
    row("held", "held", None, {}, "pass", "4 packages held"),
    row(
        "not held",
        "held",
        None,
        {"packages": packages(state="ii ")},
        "fail",
        "not held: libnvidia",
        "apt-mark hold",
        "setting apt-mark hold nvidia-container-toolkit:  -> ",
    ),
    row(
        "free, as asked", "held", ContainerToolkit(hold=False), {"packages": packages(state="ii ")}, "pass", "not held"
    ),
    row("held against the spec", "held", ContainerToolkit(hold=False), {}, "fail", "held:", "apt-mark unhold"),
    row("nothing to hold", "held", None, {"packages": ""}, "fail", "no package"),
    row("four engines", "configured", ALL, {}, "pass", "podman (CDI, no runtime"),
    row("those that the host has", "configured", None, {}, "pass", "docker, crio, podman"),
    row("containerd without docker", "configured", None, engines(containerd()), "pass", "containerd"),
    row(
        "daemon.json without it",
        "configured",
        DOCKER,
        engines(docker(BARE_DOCKER)),
        "fail",
        "docker: no runtime nvidia",
        "gpuprov apply",
        "file /etc/docker/daemon.json: no runtime nvidia -> by nvidia-ctk",
    ),
    row("no daemon.json", "configured", DOCKER, engines(docker("")), "fail", "no runtime nvidia"),
    row(
        "another program",
        "configured",
        DOCKER,
        engines(docker({"runtimes": {"nvidia": {"path": "/opt/x"}}})),
        "fail",
        "nvidia is /opt/x",
    ),
    row(
        "default, as asked",
        "configured",
        DEFAULT,
        engines(docker({**DAEMON, "default-runtime": "nvidia"})),
        "pass",
        "docker",
    ),
    row("not the default", "configured", DEFAULT, {}, "fail", "the default runtime is runc"),
    row(
        "default against the spec",
        "configured",
        DOCKER,
        engines(docker({**DAEMON, "default-runtime": "nvidia"})),
        "fail",
        "the default runtime is nvidia",
    ),
    row("broken JSON", "configured", DOCKER, engines(docker('{"a": }')), "fail", "daemon.json is not valid JSON"),
    row("a list", "configured", DOCKER, engines(docker("[]")), "fail", "is not a JSON object"),
    row("CDI not told to docker 25", "configured", DOCKER, engines(docker(version="25.0.5")), "fail", "CDI is off"),
    row(
        "CDI told to docker 25",
        "configured",
        DOCKER,
        engines(docker({**DAEMON, "features": {"cdi": True}}, version="25.0.5")),
        "pass",
    ),
    row("docker 28.2 has CDI by itself", "configured", DOCKER, engines(docker(version="28.2.0")), "pass", "docker"),
    row(
        "docker 28.2 was told off",
        "configured",
        DOCKER,
        engines(docker({**DAEMON, "features": {"cdi": False}}, version="28.2.0")),
        "fail",
        "CDI is off",
    ),
    row(
        "CDI not told to containerd 1.7",
        "configured",
        ALL,
        engines(docker(), containerd(version="1.7.24"), crio(), podman()),
        "fail",
        "containerd: CDI is off",
    ),
    row(
        "a setting behind the drop-in file",
        "configured",
        ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(main=MAIN.replace("pause:3.9", "pause:3.10"))),
        "fail",
        'hides plugins.cri.sandbox_image = "registry.example/pause:3.10"',
    ),
    row(
        "the same with containerd 2.1",
        "configured",
        ContainerToolkit(runtimes=("containerd",)),
        engines(
            containerd(
                main=MAIN.replace("pause:3.9", "pause:3.10"),
                dump=DROP_IN.replace('v1.cri"]', 'v1.cri"]\n  enable_cdi = true'),
                version="2.1.0",
            )
        ),
        "pass",
    ),
    row(
        "SystemdCgroup behind the drop-in file",
        "configured",
        ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(drop_in=DROP_IN.replace("SystemdCgroup = true", "SystemdCgroup = false"))),
        "fail",
        "SystemdCgroup = true",
    ),
    row(
        "another tool wrote containerd's file anew",
        "configured",
        ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(drop_in="", dump=MAIN)),
        "fail",
        "containerd: no runtime nvidia",
    ),
    row(
        "containerd does not understand it",
        "configured",
        ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(dump=None)),
        "fail",
        "does not understand its configuration",
    ),
    row(
        "the CRI plugin is off",
        "configured",
        ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(dump='disabled_plugins = ["cri"]\n' + DROP_IN)),
        "fail",
        "CRI plugin is disabled",
    ),
    row(
        "cri-o without it",
        "configured",
        ContainerToolkit(runtimes=("crio",)),
        engines(crio(drop_in="")),
        "fail",
        "crio: no runtime nvidia",
    ),
    row("an engine is missing", "configured", ALL, engines(docker()), "fail", "not installed: containerd crio podman"),
    row("alive, with the runtime", "registered", ALL, {}, "pass", "docker, containerd, crio"),
    row("podman has no daemon", "registered", POD, {}, "skip", "podman has none"),
    row(
        "docker is dead",
        "registered",
        DOCKER,
        engines(docker(active="failed")),
        "fail",
        "docker.service is failed",
        "journalctl",
        "service docker.service: failed -> active",
    ),
    row(
        "docker was not told",
        "registered",
        DOCKER,
        engines(docker(info={"Runtimes": {"runc": {}}})),
        "fail",
        "lists no runtime nvidia",
        "systemctl reload docker.service",
    ),
    row(
        "docker has another default",
        "registered",
        DOCKER,
        engines(docker(info={"DefaultRuntime": "nvidia"})),
        "fail",
        "the default runtime is nvidia",
    ),
    row("docker does not answer", "registered", DOCKER, engines(docker(answers=False)), "fail", "no answer"),
    row("docker answers rubbish", "registered", DOCKER, engines(docker(info="{")), "fail", "no JSON"),
    row(
        "docker complains",
        "registered",
        DOCKER,
        engines(docker(info={"ServerErrors": ["Is the docker daemon running?"]})),
        "fail",
        "Is the docker daemon running?",
    ),
    row(
        "docker 25 has no CDI directories yet",
        "registered",
        DOCKER,
        engines(docker(version="25.0.5")),
        "fail",
        "CDI directories",
    ),
    row(
        "containerd has its old files",
        "registered",
        ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(changed=LATER)),
        "fail",
        "99-nvidia.toml changed after the daemon was started",
        "systemctl restart containerd.service",
    ),
    row(
        "containerd's files lack it",
        "registered",
        ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(drop_in="")),
        "fail",
        "its configuration: no runtime nvidia",
    ),
    row(
        "cri-o was not told",
        "registered",
        ContainerToolkit(runtimes=("crio",)),
        engines(crio(live="[crio.runtime]\n")),
        "fail",
        "crio status config: no runtime nvidia",
    ),
    row("cri-o says nothing", "registered", ContainerToolkit(runtimes=("crio",)), engines(crio(live=None)), "pass"),
    row("auto", "mode", None, {}, "pass", f"cdi with {VERSION}"),
    row("auto of an old release", "mode", None, {"container_toolkit": toolkit(OLD)}, "pass", f"legacy with {OLD}"),
    row(
        "another mode",
        "mode",
        ContainerToolkit(mode="cdi"),
        {},
        "fail",
        "mode auto",
        change="file /etc/nvidia-container-runtime/config.toml: mode = auto -> mode = cdi",
    ),
    row("no file", "mode", None, {"container_toolkit": ""}, "fail", "mode is not set"),
    row("a broken file", "mode", None, {"container_toolkit": " a =\n"}, "fail", "not valid TOML"),
    row(
        "no-cgroups",
        "mode",
        None,
        {
            "container_toolkit": toolkit(
                config=' [nvidia-container-cli]\n no-cgroups = true\n [nvidia-container-runtime]\n mode = "auto"'
            )
        },
        "fail",
        "no access to their GPUs",
    ),
    row("nobody", "rootless", None, {}, "pass", "nothing asked"),
    row("a user", "rootless", ContainerToolkit(rootless=("gpuuser",)), {}, "pass", "gpuuser"),
    row(
        "a user without it",
        "rootless",
        ContainerToolkit(rootless=("gpuuser",)),
        {"rootless_users": "@user gpuuser|/home/gpuuser|1|1|0\n"},
        "fail",
        "gpuuser: no runtime nvidia",
        change="file /home/gpuuser/.config/docker/daemon.json: no runtime nvidia -> by nvidia-ctk",
    ),
    row("nobody of that name", "rootless", ContainerToolkit(rootless=("nemo",)), {}, "fail", "no such user: nemo"),
    row("as the GPUs", "cdi", None, {}, "pass", "/var/run/cdi/nvidia.yaml: 0"),
    row(
        "after a MIG change",
        "cdi",
        None,
        {"gpu_devices": MIG},
        "fail",
        "not in it: 0:0 0:1",
        "nvidia-ctk cdi generate",
        "file /var/run/cdi/nvidia.yaml:  -> made anew",
    ),
    row(
        "with the MIG devices",
        "cdi",
        None,
        {"gpu_devices": MIG, "cdi_specifications": cdi("0:0", "0:1", "MIG-a", "MIG-b")},
        "pass",
        "0:0 0:1",
    ),
    row(
        "with the MIG devices and, by an old release, their GPU",
        "cdi",
        None,
        {"gpu_devices": MIG, "cdi_specifications": cdi("0", "0:0", "0:1", "GPU-3c1f6d5e", "MIG-a", "MIG-b")},
        "pass",
    ),
    row(
        "MIG devices are gone",
        "cdi",
        None,
        {"cdi_specifications": cdi("0", "0:0", "GPU-3c1f6d5e", "MIG-a")},
        "fail",
        "in it, and gone: 0:0 MIG-a",
    ),
    row(
        "a GPU was exchanged",
        "cdi",
        None,
        {"cdi_specifications": cdi("0", "GPU-other")},
        "fail",
        "not in it: GPU-3c1f6d5e; in it, and gone: GPU-other",
    ),
    row("by index alone", "cdi", None, {"cdi_specifications": cdi("0")}, "pass"),
    row(
        "of the driver before",
        "cdi",
        None,
        {"cdi_specifications": cdi(version="535.216.03")},
        "fail",
        "driver 535.216.03, installed is 535.261.03",
    ),
    row("none", "cdi", None, {"cdi_specifications": ""}, "fail", "no such file"),
    row("of another directory", "cdi", ContainerToolkit(cdi_directory="/etc/cdi"), {}, "fail", "no such file"),
    row(
        "two",
        "cdi",
        None,
        {"cdi_specifications": cdi() + cdi(path="/etc/cdi/nvidia.yaml")},
        "fail",
        "a second specification",
        "rm /etc/cdi/nvidia.yaml",
    ),
    row(
        "MIG mode without instances",
        "cdi",
        None,
        {
            "gpu_devices": MIG.replace("  MIG", "  x"),
            "cdi_specifications": "@spec /var/run/cdi/nvidia.yaml\nkind: nvidia.com/gpu\n    - name: all\n",
        },
        "pass",
        "no device",
    ),
    row("no GPU", "cdi", None, NO_GPU, "skip", "no NVIDIA GPU"),
    row(
        "a container without its machine's driver",
        "cdi",
        None,
        {**PODMAN, "gpu_devices": "NVIDIA-SMI has failed\n"},
        "skip",
        "podman container without",
    ),
    row(
        "the driver is not loaded",
        "cdi",
        None,
        {"gpu_devices": "NVIDIA-SMI has failed\n"},
        "fail",
        "NVIDIA-SMI has failed",
        "nvidia_driver.loaded",
    ),
    row(
        "at every boot",
        "cdi_refresh",
        None,
        {},
        "pass",
        "nvidia-cdi-refresh.path and nvidia-cdi-refresh.service enabled",
    ),
    row(
        "switched off",
        "cdi_refresh",
        None,
        {"units": units(off=("service",))},
        "fail",
        "not enabled: nvidia-cdi-refresh.service",
        "systemctl enable",
        "service nvidia-cdi-refresh.service: disabled -> enabled",
    ),
    row(
        "elsewhere",
        "cdi_refresh",
        ContainerToolkit(cdi_directory="/etc/cdi"),
        {},
        "fail",
        "says /var/run/cdi/nvidia.yaml",
        change="file /etc/nvidia-container-toolkit/nvidia-cdi-refresh.env: /var/run/cdi/nvidia.yaml -> /etc/cdi/nvidia.yaml",
    ),
    row("its own default", "cdi_refresh", None, {"container_toolkit": toolkit(output="")}, "pass"),
    row(
        "an old release, with gpuprov's units",
        "cdi_refresh",
        None,
        {"container_toolkit": toolkit(OLD), "units": units(names="gpuprov-cdi-refresh")},
        "pass",
        "gpuprov-cdi-refresh.path",
    ),
    row(
        "an old release, without",
        "cdi_refresh",
        None,
        {"container_toolkit": toolkit(OLD)},
        "fail",
        "not enabled: gpuprov-cdi-refresh.path",
    ),
    row("nothing is lost", "daemon_reload", DOCKER, {}, "pass", "mode cdi, 2 device files linked"),
    row(
        "a device without its link",
        "daemon_reload",
        DOCKER,
        {"container_toolkit": toolkit(VERSION, "auto", "unlinked /dev/nvidia1")},
        "fail",
        "without a link: /dev/nvidia1",
        "create-dev-char-symlinks",
    ),
    row(
        "legacy, and systemd has the cgroups",
        "daemon_reload",
        ContainerToolkit(runtimes=("docker",), mode="legacy"),
        {},
        "fail",
        "legacy mode, and docker",
        "mode: cdi",
    ),
    row(
        "an old release, and systemd has them in containerd",
        "daemon_reload",
        ContainerToolkit(runtimes=("containerd",)),
        {"container_toolkit": toolkit(OLD)},
        "fail",
        "containerd leaves cgroups to systemd",
    ),
    row(
        "an old release, and cri-o",
        "daemon_reload",
        ContainerToolkit(runtimes=("crio",)),
        {"container_toolkit": toolkit(OLD)},
        "fail",
        "crio",
    ),
    row(
        "legacy with cgroupfs",
        "daemon_reload",
        ContainerToolkit(runtimes=("docker",), mode="legacy"),
        engines(docker(info={"CgroupDriver": "cgroupfs"})),
        "pass",
        "mode legacy",
    ),
    row("the rule", "daemon_reload_at_boot", None, {}, "pass", "71-gpuprov"),
    row("no rule", "daemon_reload_at_boot", None, {"container_toolkit": toolkit(rule=False)}, "fail", "no udev rule"),
    row(
        "the newest",
        "resolvable",
        None,
        {"packages": ""},
        "pass",
        VERSION,
        change=f"package nvidia-container-toolkit:  -> {VERSION}-1",
    ),
    row("what is there stays", "resolvable", None, {"packages": packages(OLD)}, "pass", OLD),
    row(
        "a downgrade",
        "resolvable",
        EXACT,
        {},
        "pass",
        OLD,
        change=f"package libnvidia-container1: {VERSION}-1 -> {OLD}-1",
    ),
    row(
        "no repository",
        "resolvable",
        None,
        {"packages": "", "package_index": ""},
        "fail",
        "none of nvidia-container-toolkit",
        "not in the distribution's",
    ),
    row(
        "not whole",
        "resolvable",
        EXACT,
        {"package_index": index(VERSION) + index(OLD, without="libnvidia-container1")},
        "fail",
        "no libnvidia-container1 1.17.8-1",
        f"whole set is {VERSION}",
    ),
    row(
        "no such version",
        "resolvable",
        ContainerToolkit(version="1.16.0"),
        {},
        "fail",
        'no version matches "1.16.0"',
        "nearest version",
    ),
    row("four engines", "engines", ALL, {}, "pass", "docker 20.10.24, containerd 1.6.20"),
    row("no engine", "engines", None, engines(), "fail", "neither docker, containerd, cri-o nor podman", "install one"),
    row(
        "one is missing",
        "engines",
        ALL,
        engines(docker()),
        "fail",
        "not installed: containerd crio podman",
        "installs no container engine",
    ),
    row("an old podman", "engines", POD, engines(podman("3.4.4")), "fail", "podman 3.4.4", "upgrade podman"),
    row("broken JSON", "engines", DOCKER, engines(docker("{")), "fail", "not valid JSON", "mend it"),
    row(
        "the CRI plugin is off",
        "engines",
        ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(dump='disabled_plugins = ["cri"]\n')),
        "fail",
        "CRI plugin is disabled",
        "disabled_plugins",
    ),
    row("nothing old", "leftovers", None, {}, "pass", "nothing of an older"),
    row(
        "nvidia-docker2",
        "leftovers",
        None,
        {"packages": packages() + "ii |nvidia-docker2|2.13.0-1|nvidia-docker2\n"},
        "fail",
        "nvidia-docker2",
        "apt-get purge",
    ),
    row(
        "an old list",
        "leftovers",
        None,
        {"container_toolkit": toolkit(VERSION, "auto", "leftover /etc/apt/sources.list.d/nvidia-docker.list")},
        "fail",
        "nvidia-docker.list",
        "Signed-By",
    ),
    row(
        "the hook",
        "leftovers",
        None,
        {
            "container_toolkit": toolkit(
                VERSION, "auto", "leftover /usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
            )
        },
        "fail",
        "oci-nvidia-hook.json",
        "by hook and by CDI",
    ),
    row("nobody", "rootless_users", None, {}, "pass", "nothing asked"),
    row("a user", "rootless_users", ContainerToolkit(rootless=("gpuuser",)), {}, "pass", "gpuuser"),
    row(
        "nobody of that name",
        "rootless_users",
        ContainerToolkit(rootless=("nemo",)),
        {},
        "fail",
        "no such user: nemo",
        "useradd nemo",
    ),
    row(
        "no subordinate ids",
        "rootless_users",
        ContainerToolkit(rootless=("gpuuser",)),
        {"rootless_users": "@user gpuuser|/home/gpuuser|0|0|0\n"},
        "fail",
        "no entry in /etc/subuid: gpuuser",
        "usermod --add-subuids",
    ),
    row(
        "an old release stays",
        "rootless_users",
        ContainerToolkit(rootless=("gpuuser",)),
        {"packages": packages(OLD)},
        "fail",
        "is legacy",
        "mode: cdi",
    ),
]


@pytest.mark.parametrize("question", ROWS)
def test_container_toolkit(question: Row) -> None:
    judge(question)


def test_the_sites_repository_is_trusted_to_have_it() -> None:
    check = CHECKS["container_toolkit.resolvable"]
    host = HostSpec(name="gpu1", site={"container_toolkit_repository": "https://site.example/deb /"})
    outcome = check.run(Context(host, ContainerToolkit(), facts(packages="", package_index="")))
    assert (outcome.status, outcome.found) == ("pass", "the site's repository is enabled by apply, which resolves then")


def problems(**fields: Any) -> list[tuple[str, str, str]]:
    found = container_toolkit.rules(HostSpec(name="gpu1"), ContainerToolkit(**fields))
    return [(problem.severity, problem.message, problem.hint) for problem in found]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, []),
        (
            {"runtimes": ("docker", "docker")},
            [("error", 'container_toolkit.runtimes has "docker" twice', "take one out")],
        ),
        (
            {"runtimes": ("podman",), "default_runtime": True},
            [
                (
                    "error",
                    "container_toolkit.default_runtime is true, and podman has no runtime to register: it takes GPUs by CDI",
                    "leave default_runtime out",
                )
            ],
        ),
        (
            {"rootless": ("alice",), "mode": "legacy"},
            [
                (
                    "error",
                    "container_toolkit.rootless cannot work in mode legacy: it needs no-cgroups, which breaks root's containers",
                    "mode: cdi",
                )
            ],
        ),
        (
            {"rootless": ("alice",), "version": OLD},
            [
                (
                    "error",
                    "container_toolkit.rootless cannot work in mode auto, which is legacy before 1.18.0: it needs no-cgroups, "
                    "which breaks root's containers",
                    "mode: cdi",
                )
            ],
        ),
        ({"rootless": ("alice",), "version": OLD, "mode": "cdi"}, []),
        (
            {"mode": "legacy"},
            [
                (
                    "warning",
                    "container_toolkit.mode is legacy: where systemd has the cgroups, its daemon-reload takes GPUs from containers",
                    "leave mode out, or mode: cdi",
                )
            ],
        ),
        (
            {"rootless": ("root",)},
            [("error", 'container_toolkit.rootless has "root", whose engines are those of runtimes', "take it out")],
        ),
    ],
)
def test_rules(fields: dict[str, Any], told: list[tuple[str, str, str]]) -> None:
    assert problems(**fields) == told


def test_export() -> None:
    texts = {**OTHERS, **GOOD}
    assert container_toolkit.export(facts(**texts)) == ContainerToolkit(
        version=VERSION, runtimes=("docker", "containerd", "crio", "podman"), rootless=("gpuuser",)
    )
    legacy = {
        **texts,
        "container_engines": CLOCK + docker({**DAEMON, "default-runtime": "nvidia"}) + podman(),
        "container_toolkit": toolkit(mode="legacy"),
        "cdi_specifications": "",
        "packages": packages(OLD, "ii "),
        "rootless_users": "",
    }
    wanted = ContainerToolkit(version=OLD, hold=False, runtimes=("docker",), default_runtime=True, mode="legacy")
    assert container_toolkit.export(facts(**legacy)) == wanted
    assert container_toolkit.export(facts(**{**texts, "packages": ""})) is None


def test_an_exported_host_is_as_its_export_says() -> None:
    found = container_toolkit.export(facts(**{**OTHERS, **GOOD}))
    assert isinstance(found, ContainerToolkit)
    for check in container_toolkit.CAPABILITY.checks:
        changed = {probe.name: GOOD[probe.name] for probe in check.probes if probe.name in GOOD}
        judge(Row(check.id, check.id, found, changed, "pass"))
