"""container_toolkit: registered in each engine, in force; nothing of the user's lost."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.catalog import container_toolkit as catalogue
from tests.capabilities.asking import Row, judge
from tests.capabilities.toolkit_host import (
    DAEMON,
    DROP_IN,
    LATER,
    MAIN,
    OLD,
    VERSION,
    containerd,
    crio,
    docker,
    podman,
    toolkit,
)
from tests.capabilities.toolkit_rows import ALL, BARE_DOCKER, DEFAULT, DOCKER, POD, engines, row

SPARE = "spare /usr/libexec/crio/crun"
ROWS = [
    row("four engines", "configured", ALL, {}, "pass", "podman (CDI, no runtime"),
    row("those that the host has", "configured", None, {}, "pass", "docker, crio, podman"),
    row("containerd without docker", "configured", None, engines(containerd()), "pass", "containerd"),
    row("daemon.json without it", "configured", DOCKER, engines(docker(BARE_DOCKER)), "fail",
        "docker: no runtime nvidia", "gpuprov apply",
        "file /etc/docker/daemon.json: no runtime nvidia -> by nvidia-ctk"),
    row("no daemon.json", "configured", DOCKER, engines(docker("")), "fail", "no runtime nvidia"),
    row("another program", "configured", DOCKER, engines(docker({"runtimes": {"nvidia": {"path": "/opt/x"}}})), "fail",
        "nvidia is /opt/x"),
    row("default, as asked", "configured", DEFAULT, engines(docker({**DAEMON, "default-runtime": "nvidia"})), "pass",
        "docker"),
    row("not the default", "configured", DEFAULT, {}, "fail", "the default runtime is runc"),
    row("default against the spec", "configured", DOCKER, engines(docker({**DAEMON, "default-runtime": "nvidia"})),
        "fail", "the default runtime is nvidia"),
    row("broken JSON", "configured", DOCKER, engines(docker('{"a": }')), "fail", "daemon.json is not valid JSON"),
    row("a list", "configured", DOCKER, engines(docker("[]")), "fail", "is not a JSON object"),
    row("CDI not told to docker 25", "configured", DOCKER, engines(docker(version="25.0.5")), "fail", "CDI is off"),
    row("CDI told to docker 25", "configured", DOCKER,
        engines(docker({**DAEMON, "features": {"cdi": True}}, version="25.0.5")), "pass"),
    row("docker 28.2 has CDI by itself", "configured", DOCKER, engines(docker(version="28.2.0")), "pass", "docker"),
    row("docker 28.2 was told off", "configured", DOCKER,
        engines(docker({**DAEMON, "features": {"cdi": False}}, version="28.2.0")), "fail", "CDI is off"),
    row("CDI not told to containerd 1.7", "configured", ALL,
        engines(docker(), containerd(version="1.7.24"), crio(), podman()), "fail", "containerd: CDI is off"),
    row("a setting behind the drop-in file", "configured", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(main=MAIN.replace("pause:3.9", "pause:3.10"))), "fail",
        'hides plugins.cri.sandbox_image = "registry.example/pause:3.10"'),
    row("the same with containerd 2.1", "configured", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(main=MAIN.replace("pause:3.9", "pause:3.10"), dump=DROP_IN.replace('v1.cri"]',
        'v1.cri"]\n  enable_cdi = true'), version="2.1.0")), "pass"),
    row("SystemdCgroup behind the drop-in file", "configured", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(drop_in=DROP_IN.replace("SystemdCgroup = true", "SystemdCgroup = false"))), "fail",
        "SystemdCgroup = true"),
    row("another tool wrote containerd's file anew", "configured", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(drop_in="", dump=MAIN)), "fail", "containerd: no runtime nvidia"),
    row("containerd does not understand it", "configured", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(dump=None)), "fail", "does not understand its configuration"),
    row("the CRI plugin is off", "configured", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(dump='disabled_plugins = ["cri"]\n' + DROP_IN)), "fail", "CRI plugin is disabled"),
    row("cri-o without it", "configured", ContainerToolkit(runtimes=("crio",)), engines(crio(drop_in="")), "fail",
        "crio: no runtime nvidia"),
    row("an engine is missing", "configured", ALL, engines(docker()), "fail", "not installed: containerd crio podman"),
    row("alive, with the runtime", "registered", ALL, {}, "pass", "docker, containerd, crio"),
    row("podman has no daemon", "registered", POD, {}, "skip", "podman has none"),
    row("docker is dead", "registered", DOCKER, engines(docker(active="failed")), "fail", "docker.service is failed",
        "journalctl", "service docker.service: failed -> active"),
    row("docker was not told", "registered", DOCKER, engines(docker(info={"Runtimes": {"runc": {}}})), "fail",
        "lists no runtime nvidia", "systemctl reload docker.service"),
    row("docker has another default", "registered", DOCKER, engines(docker(info={"DefaultRuntime": "nvidia"})), "fail",
        "the default runtime is nvidia"),
    row("docker does not answer", "registered", DOCKER, engines(docker(answers=False)), "fail", "no answer"),
    row("docker answers rubbish", "registered", DOCKER, engines(docker(info="{")), "fail", "no JSON"),
    row("docker complains", "registered", DOCKER,
        engines(docker(info={"ServerErrors": ["Is the docker daemon running?"]})), "fail",
        "Is the docker daemon running?"),
    row("docker 25 has no CDI directories yet", "registered", DOCKER, engines(docker(version="25.0.5")), "fail",
        "CDI directories"),
    row("containerd has its old files", "registered", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(changed=LATER)), "fail", "99-nvidia.toml changed after the daemon was started",
        "systemctl restart containerd.service"),
    row("containerd's files lack it", "registered", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(drop_in="")), "fail", "its configuration: no runtime nvidia"),
    row("cri-o was not told", "registered", ContainerToolkit(runtimes=("crio",)),
        engines(crio(live="[crio.runtime]\n")), "fail", "crio status config: no runtime nvidia"),
    row("cri-o says nothing", "registered", ContainerToolkit(runtimes=("crio",)), engines(crio(live=None)), "pass"),
    row("auto", "mode", None, {}, "pass", f"cdi with {VERSION}"),
    row("auto and a blank", "mode", None, {"container_toolkit": toolkit(VERSION, "auto ")}, "fail", "mode auto "),
    row("auto of an old release", "mode", None, {"container_toolkit": toolkit(OLD)}, "pass", f"legacy with {OLD}"),
    row("another mode", "mode", ContainerToolkit(mode="cdi"), {}, "fail", "mode auto",
        change="file /etc/nvidia-container-runtime/config.toml: mode = auto -> mode = cdi"),
    row(
        "programs of cri-o's packages, which are on no PATH",
        "mode",
        ContainerToolkit(runtimes=("crio",)),
        {"container_toolkit": toolkit(VERSION, "auto", SPARE)},
        "fail",
        "cri-o has /usr/libexec/crio/crun",
        change=f"file {catalogue.CONFIG}: runtimes that the host does not have -> runtimes = runc crun /usr/libexec/crio/crun",
    ),
    row("runc beside them", "mode", ContainerToolkit(runtimes=("crio",)),
        {"container_toolkit": toolkit(VERSION, "auto", SPARE, "runner /usr/bin/runc")}, "pass"),
    row("not for cri-o", "mode", DOCKER, {"container_toolkit": toolkit(VERSION, "auto", SPARE)}, "pass"),
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
    row("nobody", "rootless", None, {}, "n/a", "not in the spec"),
    row("a user", "rootless", ContainerToolkit(rootless=("gpuuser",)), {}, "pass", "gpuuser"),
    row("a user without it", "rootless", ContainerToolkit(rootless=("gpuuser",)),
        {"rootless_users": "@user gpuuser|/home/gpuuser|1|1|0\n"}, "fail", "gpuuser: no runtime nvidia",
        change="file /home/gpuuser/.config/docker/daemon.json: no runtime nvidia -> by nvidia-ctk"),
    row("nobody of that name", "rootless", ContainerToolkit(rootless=("nemo",)), {}, "fail", "no such user: nemo"),
]  # fmt: skip


@pytest.mark.parametrize("question", ROWS)
def test_engines(question: Row) -> None:
    judge(question)
