"""container_toolkit: what is refused offline, and before anything is changed."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities import container_toolkit
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import CHECKS, GOOD, Row, facts, judge
from tests.capabilities.toolkit_host import (
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
from tests.capabilities.toolkit_rows import ALL, DOCKER, EXACT, K3S, K3S_DEFAULT, POD, engines, row
from tests.rows import run_each

SNAP = {"container_toolkit": toolkit(VERSION, "auto", "leftover snap.docker.dockerd.service")}
ROWS = [
    row("the newest", "resolvable", None, {"packages": ""}, "pass", VERSION,
        change=f"package nvidia-container-toolkit:  -> {VERSION}-1"),
    row("what is there stays", "resolvable", None, {"packages": packages(OLD)}, "pass", OLD),
    row("a downgrade", "resolvable", EXACT, {}, "pass", OLD,
        change=f"package libnvidia-container1: {VERSION}-1 -> {OLD}-1"),
    row("no repository", "resolvable", None, {"packages": "", "package_index": ""}, "fail",
        "none of nvidia-container-toolkit", "not in the distribution's"),
    row("incomplete", "resolvable", EXACT,
        {"package_index": index(VERSION) + index(OLD, without="libnvidia-container1")}, "fail",
        "no libnvidia-container1 1.17.8-1", f"whole set is {VERSION}"),
    row("no such version", "resolvable", ContainerToolkit(version="1.16.0"), {}, "fail", 'no version matches "1.16.0"',
        "nearest version"),
    row("four engines", "engines", ALL, {}, "pass", "docker 20.10.24, containerd 1.6.20"),
    row("no engine", "engines", None, engines(), "fail", "no docker, containerd, cri-o, podman, k3s", "install one"),
    row("one is missing", "engines", ALL, engines(docker()), "fail", "not installed: containerd crio podman",
        "installs no container engine"),
    row("an old podman", "engines", POD, engines(podman("3.4.4")), "fail", "podman 3.4.4", "upgrade podman"),
    row("broken JSON", "engines", DOCKER, engines(docker("{")), "fail", "not valid JSON", "fix it"),
    row("k3s and MicroK8s", "engines", None, engines(k3s(), microk8s()), "pass", "k3s 1.33.5, microk8s 2.1.3"),
    row("k3s that would register it", "engines", K3S, engines(k3s(runtime="",
                                                                  settings={"config.yaml": "default-runtime: "
                                                                                           "nvidia\n"})),
        "pass"),
    row("k3s with docker", "engines", K3S, engines(k3s().partition("@file")[0]), "fail",
        "has not started yet, or runs pods in docker",
        "take k3s out of runtimes"),
    row("a template that lists no runtimes", "engines", K3S, engines(k3s(runtime="", template="\n")), "fail",
        'config-v3.toml.tmpl leaves out the runtimes that k3s found: add {{ template "base" . }} to it'),
    row("a template that names it", "engines", K3S, engines(k3s(template="\n")), "pass"),
    row("a flag against the spec", "engines", K3S, engines(k3s(more="@default nvidia\n")), "fail",
        "k3s.service gives k3s --default-runtime nvidia, which no file can change"),
    row("a flag as asked", "engines", K3S_DEFAULT, engines(k3s(more="@default nvidia\n")), "pass"),
    row("no such setting", "engines", K3S_DEFAULT, engines(k3s(version="1.27.1")), "fail",
        "k3s 1.27.1 has no setting default-runtime, which came with 1.28.5"),
    row("a later file", "engines", K3S_DEFAULT,
        engines(k3s(settings={"config.yaml.d/zz.yaml": "default-runtime: crun\n"})), "fail",
        "a file that k3s reads after /etc/rancher/k3s/config.yaml.d/99-gpuprov.yaml has default-runtime: crun"),
    row("the CRI plugin is off", "engines", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(dump='disabled_plugins = ["cri"]\n')), "fail", "CRI plugin is disabled", "out of runtimes"),
    row("the CRI plugin is off in containerd 2", "engines", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(dump="version = 3\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n", version="2.1.4")),
        "fail", "disabled_plugins: io.containerd.grpc.v1.cri", "fix it in /etc/containerd/config.toml"),
    row("containerd 2.1 passes over a file of version 1", "engines", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(main='[plugins.cri.containerd.runtimes.kata.options]\nBinaryName = "/usr/bin/kata"\n',
        drop_in="", dump="version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n",
        version="2.1.4")), "fail",
        "containerd 2.1.4 does not take runtime kata from /etc/containerd/config.toml, which is of version 1",
        "fix it"),
    row("nothing old", "leftovers", None, {}, "pass", "nothing left of an older"),
    row("nvidia-docker2", "leftovers", None, {"packages": packages() + "ii |nvidia-docker2|2.13.0-1|nvidia-docker2\n"},
        "fail", "nvidia-docker2", "apt-get purge"),
    row("an old list", "leftovers", None,
        {"container_toolkit": toolkit(VERSION, "auto", "leftover /etc/apt/sources.list.d/nvidia-docker.list")}, "fail",
        "nvidia-docker.list", "Signed-By"),
    row("the hook", "leftovers", None, {"container_toolkit": toolkit(VERSION, "auto",
        "leftover /usr/share/containers/oci/hooks.d/oci-nvidia-hook.json")}, "fail", "oci-nvidia-hook.json",
        "by hook and by CDI"),
    row("docker's snap", "leftovers", DOCKER, SNAP, "fail", "snap.docker.dockerd.service", "snap disable docker"),
    row("docker's snap alone", "leftovers", None, SNAP | engines(), "fail", "snap.docker.dockerd.service"),
    row("docker's snap beside cri-o", "leftovers", ContainerToolkit(runtimes=("crio",)), SNAP, "pass"),
    row("nobody", "rootless_users", None, {}, "n/a", "not in the spec"),
    row("a user", "rootless_users", ContainerToolkit(rootless=("gpuuser",)), {}, "pass", "gpuuser"),
    row("nobody of that name", "rootless_users", ContainerToolkit(rootless=("nemo",)), {}, "fail",
        "no such user: nemo", "useradd nemo"),
    row("no subordinate ids", "rootless_users", ContainerToolkit(rootless=("gpuuser",)),
        {"rootless_users": "@user gpuuser|/home/gpuuser|0|0|0\n"}, "fail", "no entry in /etc/subuid: gpuuser",
        "usermod --add-subuids"),
    row("an old release stays", "rootless_users", ContainerToolkit(rootless=("gpuuser",)),
        {"packages": packages(OLD)}, "fail", "is legacy", "mode: cdi"),
]  # fmt: skip


@run_each("question", ROWS)
def test_preflight(question: Row) -> None:
    judge(question)


def test_the_sites_repository_is_asked_when_it_is_there() -> None:
    check = CHECKS["container_toolkit.resolvable"]
    host = HostSpec(name="gpu1", site={"container_toolkit_repository": "https://site.example/deb /"})
    known = {**GOOD, "packages": "", "package_index": "", "repositories": "@arch amd64\n@end\n"}
    outcome = check.run(Context(host, ContainerToolkit(), facts(**known)))
    assert (outcome.status, outcome.changes[0].after) == (
        "skip",
        "resolved when apply has added https://site.example/deb",
    )


def test_who_has_no_repository_is_told_the_one_of_the_host() -> None:
    check = CHECKS["container_toolkit.resolvable"]
    el = {"os_release": 'ID="rocky"\nID_LIKE="rhel"\nVERSION_ID="9.4"\n', "platform": "Linux 5.14 aarch64\n"}
    for changed, url in (({}, "/stable/deb/amd64"), (el, "/stable/rpm/aarch64")):
        known = {**GOOD, "packages": "", "package_index": "", **changed}
        assert url in check.run(Context(HostSpec(name="gpu1"), ContainerToolkit(), facts(**known))).fix


def problems(**fields: Any) -> list[tuple[str, str, str]]:
    found = container_toolkit.rules(HostSpec(name="gpu1"), ContainerToolkit(**fields))
    return [(problem.severity, problem.message, problem.fix) for problem in found]


@run_each(
    ("fields", "told"),
    [
        ({}, []),
        ({"runtimes": ("docker", "docker")},
            [("error", 'container_toolkit.runtimes has "docker" twice', "take one out")]),
        ({"runtimes": ("podman",), "default_runtime": True}, [("error",
            "container_toolkit.default_runtime is true, and podman has no runtime to register: it takes GPUs by CDI",
            "leave default_runtime out")]),
        (
            {"rootless": ("alice",), "mode": "legacy"},
            [
                (
                    "error",
                    "container_toolkit.rootless cannot work in mode legacy: it needs no-cgroups, which breaks "
                    "root's containers",
                    "mode: cdi",
                )
            ],
        ),
        (
            {"rootless": ("alice",), "version": OLD},
            [
                (
                    "error",
                    "container_toolkit.rootless cannot work in mode auto, which is legacy before 1.18.0: it needs "
                    "no-cgroups, which breaks root's containers",
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
                    "container_toolkit.mode is legacy: where systemd has the cgroups, its daemon-reload takes GPUs "
                    "from containers",
                    "leave mode out, or mode: cdi",
                )
            ],
        ),
        ({"runtimes": ("crio",), "cuda_image": "site/cuda:1"}, [("error",
            "container_toolkit.cuda_image needs one of docker, podman, containerd: with crio a kubelet alone starts "
            "containers",
            "leave cuda_image out, and run a pod that computes")]),
        ({"runtimes": ("crio", "podman"), "cuda_image": "site/cuda:1"}, []),
        ({"cuda_pull": True}, [("error", "container_toolkit.cuda_pull is true, and no image is named",
            "name one in container_toolkit.cuda_image")]),
        ({"rootless": ("root",)},
            [("error", 'container_toolkit.rootless has "root", whose engines are those of runtimes', "take it out")]),
    ],
)  # fmt: skip
def test_rules(fields: dict[str, Any], told: list[tuple[str, str, str]]) -> None:
    assert problems(**fields) == told
