"""The configurations that engines are met with, in every generation: what NVIDIA tests its tool with, and what sites
have.

The first kind follows https://github.com/NVIDIA/nvidia-container-toolkit (pkg/config/engine,
cmd/nvidia-ctk/runtime/configure), the others what distributions, kubeadm hosts, Kubespray and the cri-o packages write;
both said here in a form of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.engines.kubespray import KUBESPRAY, KUBESPRAY_NVIDIA

CONTAINERD = ("1.6.20", "1.7.27", "2.1.4", "2.3.0")
DOCKER = ("27.5.1", "28.3.3")
CRIO = ("1.30.4",)
PLUGIN = {1: "cri", 2: '"io.containerd.grpc.v1.cri"', 3: '"io.containerd.cri.v1.runtime"'}
MAIN, SITE = "/etc/containerd/config.toml", "/etc/containerd/conf.d/10-site.toml"
DAEMON, CRIO_CONF, CRIO_PACKAGED = (
    "/etc/docker/daemon.json",
    "/etc/crio/crio.conf",
    "/etc/crio/crio.conf.d/10-crio.conf",
)
BOTH = (False, True)
TWO_FILES = "the plugin's settings in two files"


@dataclass(frozen=True)
class Case:
    """A configuration, and what is to become of it. `refused`: why, where it is to be refused."""

    why: str
    engine: str
    version: str
    files: dict[str, str]
    default: bool
    refused: str = ""
    drop_ins: bool = True

    @property
    def generation(self) -> str:
        """The engine with its release line."""
        return f"{self.engine} {'.'.join(self.version.split('.')[:2])}"

    @property
    def name(self) -> str:
        """What tells this case from all others."""
        tool = "" if self.drop_ins else ", toolkit 1.17"
        return f"{self.engine} {self.version}, {self.why}{', default' if self.default else ''}{tool}"


def cri(version: int, default: str = "", /, **runtimes: dict[str, Any]) -> str:
    """containerd's main file with these runtimes; `options` is a table of its own."""
    plugin = f"plugins.{PLUGIN[min(version, 3)]}"
    lines = ["# kept by the site's own tool", f"version = {version}"] if version > 1 else ["# of an old host"]
    lines += [f"[{plugin}.containerd]", f'default_runtime_name = "{default}"'] if default else []
    for name, values in runtimes.items():
        lines.append(f"[{plugin}.containerd.runtimes.{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items() if key != "options"]
        lines.append(f"[{plugin}.containerd.runtimes.{name}.options]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.get("options", {}).items()]
    return "\n".join(lines) + "\n"


def runtime(kind: str, program: str, *, private: bool = True, cgroup: bool = True) -> dict[str, Any]:
    """A runtime of containerd's."""
    return {"runtime_type": kind, "privileged_without_host_devices": private,
            "options": {"BinaryName": program, "SystemdCgroup": cgroup}}  # fmt: skip


V2 = "io.containerd.runc.v2"
RUNC, OTHER = runtime(V2, "/usr/bin/runc"), runtime(V2, "/usr/bin/default", private=False, cgroup=False)
NVIDIA = runtime(V2, "/usr/bin/nvidia-container-runtime", private=False)
UNTYPED = runtime("", "/usr/bin/runc")
DEBIAN = """\
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd"
"""
DOCKERS = '# of docker\'s own packages\ndisabled_plugins = ["cri"]\n'
MIRRORS = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "/etc/containerd/certs.d"\n'
IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]'
IMPORTING = f"version = 2\n# files of ours\n{IMPORTS}\n"
FIRST = {
    "runc": cri(1, runc=RUNC),
    "a default runtime": cri(1, "default", default=OTHER),
    "a default runtime and runc": cri(1, "default", runc=RUNC, default=OTHER),
}


def of_containerd(version: str) -> Iterator[tuple[str, tuple[bool, ...], dict[str, str], str]]:
    """Configurations that this release of containerd meets: what, with which defaults asked, the files, why refused."""
    two = version.startswith("2")
    nvidia = cri(2, "nvidia", nvidia=NVIDIA)
    for why, text in {"without a type": cri(2, runc=UNTYPED), "runc": cri(2, runc=RUNC),
                      "a default runtime": cri(2, "default", default=OTHER),
                      "a default runtime and runc": cri(2, "default", runc=RUNC, default=OTHER)}.items():  # fmt: skip
        yield f"NVIDIA: {why}", (False,), {MAIN: text}, ""
    yield "NVIDIA: already there and default", (True,), {MAIN: nvidia}, ""
    yield "NVIDIA: already there, not to be default", (False,), {MAIN: cri(2, "nvidia", runc=RUNC, nvidia=NVIDIA)}, ""
    yield "NVIDIA: default without such a runtime", (True,), {MAIN: cri(2, "nvidia", runc=RUNC)}, ""
    yield "NVIDIA: imports of others", (False,), {MAIN: 'version = 2\nimports = ["/foo/bar/*.toml"]\n'}, ""
    yield "NVIDIA: without NVIDIA's runtime", (True,), {MAIN: cri(2, "runc", runc=RUNC)}, ""
    unread = "which is of version 1" if version.startswith("2.1") else ""
    for why, text in FIRST.items():
        yield f"NVIDIA: version 1, {why}", (False,), {MAIN: text}, unread
    old = {
        "runtime_type": "io.containerd.runtime.v1.linux",
        "options": {"Runtime": "/usr/bin/runc", "BinaryName": "/usr/bin/runc"},
    }
    yield "NVIDIA: version 1, the first shim", (False,), {MAIN: "version = 1\n" + cri(1, "runc", runc=old)}, unread
    if two:
        yield "NVIDIA: an empty version 3", (False,), {MAIN: "version = 3\n"}, ""
        yield "NVIDIA: version 3", (False,), {MAIN: cri(3, runc=RUNC)}, ""
    yield "no file", BOTH, {}, ""
    yield "an empty file", BOTH, {MAIN: ""}, ""
    yield "only a comment", BOTH, {MAIN: "# nothing yet\n"}, ""
    yield "its own defaults", BOTH, {MAIN: "DEFAULTS"}, ""
    yield (
        "a tab before version",
        BOTH,
        {MAIN: '\tversion = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "x/pause:3.9"\n'},
        "",
    )
    yield "Debian's file", BOTH, {MAIN: DEBIAN}, ""
    yield "docker's package, CRI disabled", BOTH, {MAIN: DOCKERS}, "the CRI plugin is disabled"
    disabled = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
    yield "CRI disabled by its long name", (False,), {MAIN: disabled}, "the CRI plugin is disabled"
    yield "mirrors in a file of the site's", BOTH, {MAIN: IMPORTING, SITE: MIRRORS}, ""
    main = KUBESPRAY[2].replace("DEFAULT", "runc")
    yield (TWO_FILES, BOTH, {MAIN: main.replace("version", f"{IMPORTS}\nversion"), SITE: MIRRORS}, "")
    if version.startswith("1.7") or two:
        yield "Kubespray's", BOTH, {MAIN: KUBESPRAY[2].replace("DEFAULT", "runc")}, ""
    if two:
        third = KUBESPRAY[3].replace("VERSION", "3")
        yield "the defaults of 1.7", BOTH, {MAIN: "DEFAULTS 1.7.27"}, ""
        yield "systemd's cgroups", BOTH, {MAIN: cri(3, runc={"options": {"SystemdCgroup": True}})}, ""
        yield "Kubespray's, version 3", BOTH, {MAIN: third.replace("DEFAULT", "runc")}, ""
        mine = third.replace("DEFAULT", "nvidia") + KUBESPRAY_NVIDIA
        yield "Kubespray's, with NVIDIA's", BOTH, {MAIN: mine}, ""
        yield (
            "imports beside it",
            BOTH,
            {MAIN: 'version = 3\nimports = ["conf.d/10-*.toml"]\n', SITE: cri(3, runc=RUNC)},
            "",
        )
    if version.startswith("2.3"):
        yield (
            "Kubespray's, version 4",
            BOTH,
            {MAIN: KUBESPRAY[3].replace("VERSION", "4").replace("DEFAULT", "runc")},
            "",
        )


SITE_DAEMON = {
    "exec-opts": ["native.cgroupdriver=systemd"],
    "log-driver": "json-file",
    "log-opts": {"max-size": "100m"},
}
BARE, FULL = {"path": "nvidia-container-runtime"}, {"path": "/usr/bin/nvidia-container-runtime", "runtimeArgs": []}
OF_DOCKER: list[tuple[str, tuple[bool, ...], str, str]] = [
    ("NVIDIA: no settings", BOTH, "{}", ""),
    ("NVIDIA: another default", (True,), json.dumps({"default-runtime": "ALREADY_SET"}), ""),
    (
        "NVIDIA: another default",
        (False,),
        json.dumps({"default-runtime": "ALREADY_SET"}),
        "which is not among the runtimes",
    ),
    ("NVIDIA: another program", (False,), json.dumps({"runtimes": {"nvidia": {"path": "runtime1", "args": []}}}), ""),
    ("NVIDIA: another runtime", (False,), json.dumps({"runtimes": {"not-nvidia": {"path": "other", "args": []}}}), ""),
    ("NVIDIA: a kubeadm host's", BOTH, json.dumps(SITE_DAEMON), ""),
    ("NVIDIA: a bare name", (False,), json.dumps({"runtimes": {"nvidia": {**BARE, "args": []}}}), ""),
    ("default already", BOTH, json.dumps({"default-runtime": "nvidia", "runtimes": {"nvidia": FULL}}), ""),
    ("of nvidia-docker2", BOTH, json.dumps({"runtimes": {"nvidia": {**BARE, "runtimeArgs": []}}}), ""),
    ("another feature", BOTH, json.dumps({"features": {"buildkit": True}}), ""),
    ("CDI off, another feature", BOTH, json.dumps({"features": {"cdi": False, "buildkit": True}}), ""),
    ("a byte order mark", BOTH, '\ufeff{"log-driver": "journald"}', "not valid JSON"),
    ("a trailing comma", BOTH, '{"log-driver": "journald",}', "not valid JSON"),
    ("runtimes that are null", BOTH, '{"runtimes": null}', "runtimes in /etc/docker/daemon.json is not a JSON object"),
    ("a list", BOTH, "[]", "daemon.json is not a JSON object"),
]
NVIDIA_CRIO = (
    '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/nvidia-container-runtime"\nruntime_type = "oci"\n'
)
OTHER_CRIO = '[crio.runtime.runtimes.default]\nruntime_path = "/usr/bin/default"\nruntime_type = "defaultoci"\n'
RUNC_CRIO = '[crio.runtime.runtimes.runc]\nruntime_path = "/usr/bin/runc"\nruntime_type = "oci"\n'
PACKAGED = """\
[crio.image]
signature_policy = "/etc/crio/policy.json"
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
allowed_annotations = ["io.containers.trace-syscall"]
"""
KUBESPRAY_CRIO = f"""\
# of Kubespray's making
[crio]
log_dir = "/var/log/crio/pods"
[crio.runtime]
cgroup_manager = "systemd"
default_runtime = "runc" # ours
{RUNC_CRIO}"""
DEFAULT_CRIO, OLD_CRIO = (
    OTHER_CRIO.replace("[", '[crio.runtime]\ndefault_runtime = "default"\n[', 1),
    NVIDIA_CRIO.replace("/usr/bin", "/old"),
)
THERE_CRIO = f'# ours\n[crio.runtime]\ndefault_runtime = "nvidia"\n{NVIDIA_CRIO}'
OF_CRIO: list[tuple[str, tuple[bool, ...], dict[str, str]]] = [
    ("NVIDIA: no settings", BOTH, {}),
    ("NVIDIA: runc", (False,), {CRIO_CONF: RUNC_CRIO}),
    ("NVIDIA: a default runtime", (False,), {CRIO_CONF: DEFAULT_CRIO}),
    ("NVIDIA: a default runtime and runc", (False,), {CRIO_CONF: DEFAULT_CRIO + RUNC_CRIO}),
    ("NVIDIA: already there", BOTH, {CRIO_CONF: THERE_CRIO}),
    ("NVIDIA: an old path", (True,), {CRIO_CONF: OLD_CRIO + RUNC_CRIO}),
    ("the packages' file", BOTH, {CRIO_PACKAGED: PACKAGED}),
    ("already there beside the packages' file", (False,), {CRIO_CONF: THERE_CRIO, CRIO_PACKAGED: PACKAGED}),
    ("Kubespray's", BOTH, {CRIO_CONF: KUBESPRAY_CRIO}),
]


def every() -> list[Case]:
    """All cases."""
    made = [
        Case(why, "containerd", version, files, default, refused)
        for version in CONTAINERD
        for why, defaults, files, refused in of_containerd(version)
        for default in defaults
    ]
    made += [
        Case(why, "docker", version, {DAEMON: text}, default, refused)
        for version in DOCKER
        for why, defaults, text, refused in OF_DOCKER
        for default in defaults
    ]
    made += [Case(why, "crio", CRIO[0], files, default) for why, defaults, files in OF_CRIO for default in defaults]
    old = ("another feature", "NVIDIA: runc", "NVIDIA: already there", "Kubespray's", TWO_FILES)
    # nvidia-ctk before 1.20 copies runc without a type, and gives NVIDIA's none: in containerd 2.3 alone, since the
    # others are slow.
    untyped = ("systemd's cgroups", "NVIDIA: without a type")
    # Without a drop-in file, a file of the site's hides the main one from containerd 1.
    hidden = {TWO_FILES: "no runtime nvidia"}
    return made + [
        replace(one, drop_ins=False, refused=hidden.get(one.why, "") if one.version.startswith("1.") else "")
        for one in made
        if one.why in old or (one.why in untyped and one.version == "2.3.0")
    ]
