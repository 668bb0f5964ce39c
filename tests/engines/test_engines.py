"""What container engines' files say of NVIDIA's runtime, and what a change lost: on files as hosts have them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpuprov import engines
from tests.capabilities.toolkit_host import CLOCK, CRIO, DAEMON, DROP_IN, MAIN, containerd, crio, docker, podman
from tests.probe import captured

DATA = Path(__file__).parent / "data"
FILTERS = engines.FilterModule().filters()


def dump(name: str) -> dict[str, Any]:
    """What containerd 1.6 of Debian 12 dumped."""
    return tomllib.loads((DATA / f"containerd-1.6-{name}.toml").read_text(encoding="utf-8"))


def one(text: str) -> engines.Engine:
    return next(iter(engines.parse(CLOCK + text).values()))


def test_a_real_host_is_understood() -> None:
    found = engines.parse(captured("container_engines", "debian12").text)
    assert {name: engine["version"] for name, engine in found.items()} == {
        "docker": "20.10.24",
        "containerd": "1.6.20",
        "podman": "4.3.1",
    }
    for name in ("docker", "containerd"):
        assert engines.differences(name, found[name], False) == []
        assert engines.in_force(name, found[name], False) == ""
        assert (found[name]["active"], found[name]["enabled"]) == ("active", "enabled")
    assert set(found["containerd"]["files"]) == {engines.MAIN["containerd"], engines.DROP_IN}


# nvidia-ctk 1.20.1 beside containerd 1.6.20 with Debian's own configuration: the built-in runc is gone from the dump.
def test_a_runtime_that_nvidia_ctk_lost_is_noticed() -> None:
    gone = engines.lost("containerd", dump("before"), dump("from-file"))
    assert 'plugins.io.containerd.grpc.v1.cri.containerd.runtimes.runc.runtime_type = "io.containerd.runc.v2"' in gone
    assert all(".runtimes.runc." in setting for setting in gone)


def test_from_all_that_is_in_force_nothing_is_lost() -> None:
    assert engines.lost("containerd", dump("before"), dump("from-command")) == []
    assert engines.registered("containerd", dump("from-command"))["path"] == "/usr/bin/nvidia-container-runtime"


SITE = {
    "exec-opts": ["native.cgroupdriver=systemd"],
    "features": {"buildkit": True, "containerd-snapshotter": False},
    "log-driver": "json-file",
    "log-opts": {"max-size": "10m", "max-file": "3"},
    "insecure-registries": ["registry.example:5000"],
    "default-runtime": "kata",
    "runtimes": {"kata": {"path": "/usr/bin/kata-runtime"}},
    "default-ulimits": {"memlock": {"Name": "memlock", "Hard": -1, "Soft": -1}},
}


@pytest.mark.parametrize(
    ("after", "gone"),
    [
        ({**SITE, "runtimes": {**SITE["runtimes"], **DAEMON["runtimes"]}, "default-runtime": "nvidia"}, []),  # type: ignore[dict-item]
        ({**SITE, "features": {**SITE["features"], "cdi": True}}, []),  # type: ignore[dict-item]
        ({**SITE, "features": {"cdi": True}}, ["features.buildkit = true", "features.containerd-snapshotter = false"]),
        ({**SITE, "exec-opts": []}, ['exec-opts = ["native.cgroupdriver=systemd"]']),
        ({**SITE, "runtimes": DAEMON["runtimes"]}, ['runtimes.kata.path = "/usr/bin/kata-runtime"']),
        ({**SITE, "log-opts": {"max-size": "1g", "max-file": "3"}}, ['log-opts.max-size = "10m"']),
        (
            {"runtimes": {**SITE["runtimes"], "nvidia": {}}, "default-runtime": "nvidia"},  # type: ignore[dict-item]
            [setting for setting in engines.lost("docker", SITE, {}) if not setting.startswith("runtimes")],
        ),
    ],
)
def test_settings_of_docker_that_were_lost(after: dict[str, Any], gone: list[str]) -> None:
    assert engines.lost("docker", SITE, after) == gone


def test_the_roles_filter_says_the_same() -> None:
    before, after = one(docker(SITE)), one(docker({**SITE, "log-driver": "journald"}))
    assert FILTERS["gpuprov_engine_lost"](before, after, "docker") == ['log-driver = "json-file"']
    assert FILTERS["gpuprov_engine_lost"](before, before, "docker") == []
    broken = one(docker("{"))
    assert "not valid JSON" in FILTERS["gpuprov_engine_lost"](before, broken, "docker")[0]
    assert FILTERS["gpuprov_engine_differences"](one(docker()), "docker", False) == []
    assert FILTERS["gpuprov_engine_in_force"](one(docker()), "docker", False) == ""


def test_files_of_crio_are_read_in_its_order() -> None:
    text = CLOCK + crio() + '@file /etc/crio/crio.conf.d/10-site 1\n [crio.runtime]\n cgroup_manager = "cgroupfs"\n'
    config = engines.configuration("crio", engines.parse(text)["crio"])
    assert engines.at(config, "crio", "runtime", "cgroup_manager") == "cgroupfs"
    assert engines.at(config, "crio", "runtime", "runtimes", "runc", "runtime_type") == "oci"
    assert engines.registered("crio", config)["path"] == "/usr/bin/nvidia-container-runtime"


@pytest.mark.parametrize(
    ("original", "wanted"),
    [
        (MAIN.replace(MAIN.splitlines()[0] + "\n", ""), MAIN),
        (MAIN.replace("/etc/containerd/conf.d/*.toml", "/etc/site/*.toml"), None),
        ('imports = [\n  "/etc/site/*.toml", # ours\n]\n' + MAIN.partition("\n")[2], None),
        (MAIN, MAIN),
    ],
)
def test_comments_of_containerds_file_survive(original: str, wanted: str | None) -> None:
    read = tomllib.loads(original)
    imports = [*(p for p in read.get("imports", []) if "conf.d" not in p), "/etc/containerd/conf.d/*.toml"]
    produced = f"imports = {json.dumps(imports)}\n{''.join(MAIN.splitlines(keepends=True)[2:])}"
    text = engines.with_imports(original, produced)
    assert "# see the site's wiki" in text
    assert tomllib.loads(text) == {**read, "imports": imports}
    if wanted:
        assert text == wanted


@pytest.mark.parametrize("original", ["", "\n", "not toml ["])
def test_a_file_without_anything_to_keep_is_nvidia_ctks(original: str) -> None:
    assert engines.with_imports(original, "version = 2\n") == "version = 2\n"


def test_a_file_that_was_changed_in_more_than_imports_is_nvidia_ctks() -> None:
    produced = "version = 1\n[plugins.cri]\nx = 1\n"
    assert engines.with_imports("# ours\n[plugins.cri]\n", produced) == produced


def test_the_default_runtime_is_given_back_to_docker() -> None:
    text = json.dumps({**SITE, "default-runtime": "nvidia"})
    assert json.loads(engines.without_default(text)) == {**SITE, "default-runtime": "runc"}
    assert engines.without_default(json.dumps(SITE)) == json.dumps(SITE)


FIRST = '# a comment\n[plugins.cri]\n  sandbox_image = "x"\n'


@pytest.mark.parametrize(
    ("name", "text", "options", "told"),
    [
        ("docker", docker(), (False, True), []),
        ("docker", docker(version="27.0.1"), (True, True), ["--set-as-default", "--enable-cdi"]),
        ("containerd", containerd(), (True, True), ["--set-as-default"]),
        ("containerd", containerd(version="1.7.24"), (False, True), ["--enable-cdi"]),
        ("containerd", containerd(main=FIRST, drop_in="", version="1.7.24"), (False, True), ["--drop-in-config="]),
        ("containerd", containerd(main=FIRST, drop_in=""), (False, False), []),
        ("containerd", containerd(main="", drop_in=""), (False, True), []),
        ("containerd", containerd(main="version = 3\n", drop_in="", version="2.0.0"), (False, True), ["--enable-cdi"]),
        ("crio", crio(), (True, True), ["--set-as-default"]),
    ],
)
def test_how_nvidia_ctk_is_told(name: str, text: str, options: tuple[bool, bool], told: list[str]) -> None:
    head = ["nvidia-ctk", "--quiet", "runtime", "configure", f"--runtime={name}", "--config-source=file"]
    assert engines.command(one(text), name, *options) == [*head, *told]
    assert engines.command(one(text), name, *options, "command")[5] == "--config-source=command"


@pytest.mark.parametrize("plugin", engines.CRI)
def test_the_runtime_is_found_in_every_version_of_the_configuration(plugin: str) -> None:
    section = {
        "enable_cdi": True,
        "containerd": {"default_runtime_name": "nvidia", "runtimes": {"nvidia": {"options": {"BinaryName": "/x"}}}},
    }
    assert engines.registered("containerd", {"plugins": {plugin: section}}) == {
        "path": "/x",
        "default": "nvidia",
        "cdi": True,
    }


def test_a_setting_of_another_drop_in_file_is_not_ours_to_hide() -> None:
    other = '@file /etc/containerd/conf.d/10-site.toml 1\n [plugins."io.containerd.grpc.v1.cri"]\n  stream_server_port = "1"\n'
    hidden = engines.shadowed(one(containerd() + other))
    assert hidden == ['plugins.cri.stream_server_port = "1"']
    assert engines.shadowed(one(containerd(drop_in="", dump=DROP_IN))) == []


def test_what_cannot_be_read_is_said_with_its_file() -> None:
    with pytest.raises(ValueError, match=r"crio\.conf is not valid TOML"):
        engines.configuration("crio", one("@engine crio\n@version 1.30.4\n@file /etc/crio/crio.conf 1\n x =\n"))
    with pytest.raises(ValueError, match="does not understand"):
        engines.configuration("containerd", one(containerd(dump=None)))
    assert engines.configuration("crio", one("@engine crio\n@version 1.30.4\n")) == {}
    assert CRIO.startswith("[crio.runtime]")
    assert one(podman())["version"] == "4.3.1"
