"""What container engines' files say of NVIDIA's runtime, and what a change lost: on files as hosts have them."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuprov.rules import engine_files, engine_output, engine_runtimes, engines
from tests.capabilities.toolkit_host import (
    CLOCK,
    CRIO,
    CRIO_DROP_IN,
    DAEMON,
    DROP_IN,
    MAIN,
    containerd,
    crio,
    docker,
    podman,
)
from tests.facts.probes import captured
from tests.rows import run_each

DATA = Path(__file__).parent / "data"


def dump(name: str) -> dict[str, Any]:
    """What containerd 1.6 of Debian 12 dumped."""
    return tomllib.loads((DATA / f"containerd-1.6-{name}.toml").read_text(encoding="utf-8"))


def one(text: str) -> engine_output.Engine:
    return next(iter(engine_output.parse(CLOCK + text).values()))


def test_a_real_host_is_understood() -> None:
    found = engine_output.parse(captured("container_engines", "debian12").text)
    assert {name: engine.version for name, engine in found.items()} == {
        "docker": "20.10.24",
        "containerd": "1.6.20",
        "podman": "4.3.1",
    }
    for name in ("docker", "containerd"):
        assert engines.differences(name, found[name], False) == []
        assert engines.in_force(name, found[name], False) == ""
        assert (found[name].active, found[name].enabled) == ("active", "enabled")
    assert set(found["containerd"].files) == {engines.MAIN["containerd"], engines.DROP_IN}


# nvidia-ctk 1.20.1 beside containerd 1.6.20 with Debian's own configuration: the built-in runc is gone from the dump.
def test_a_runtime_that_nvidia_ctk_lost_is_noticed() -> None:
    gone = engines.lost("containerd", dump("before"), dump("from-file"))
    assert 'plugins.io.containerd.grpc.v1.cri.containerd.runtimes.runc.runtime_type = "io.containerd.runc.v2"' in gone
    assert all(".runtimes.runc." in setting for setting in gone)


def test_from_all_that_is_in_force_nothing_is_lost() -> None:
    assert engines.lost("containerd", dump("before"), dump("from-command")) == []
    assert engines.registered("containerd", dump("from-command")).path == "/usr/bin/nvidia-container-runtime"


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


@run_each(
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


def test_what_was_lost_between_two_states() -> None:
    before, after = one(docker(SITE)), one(docker({**SITE, "log-driver": "journald"}))
    assert engines.lost_between("docker", before, after) == ['log-driver = "json-file"']
    assert engines.lost_between("docker", before, before) == []
    assert "not valid JSON" in engines.lost_between("docker", before, one(docker("{")))[0]


def test_files_of_crio_are_read_in_its_order() -> None:
    text = CLOCK + crio() + '@file /etc/crio/crio.conf.d/10-site 1\n [crio.runtime]\n cgroup_manager = "cgroupfs"\n'
    config = engines.configuration("crio", engine_output.parse(text)["crio"])
    assert engines.at(config, "crio", "runtime", "cgroup_manager") == "cgroupfs"
    assert engines.at(config, "crio", "runtime", "runtimes", "runc", "runtime_type") == "oci"
    assert engines.registered("crio", config).path == "/usr/bin/nvidia-container-runtime"


@run_each(
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
    text = engine_files.with_imports(original, produced)
    assert "# see the site's wiki" in text
    assert tomllib.loads(text) == {**read, "imports": imports}
    if wanted:
        assert text == wanted


@pytest.mark.install
def test_a_file_that_is_nested_deep_is_no_fault_of_ours() -> None:
    """tomllib reads it; Python cannot compare it."""
    deep = "a." * 1500 + "b = 1\n"
    assert engine_files.with_imports(deep, f"imports = []\n{deep}").endswith(deep)
    assert engine_files.with_default(deep, "crio", "crun") == deep


@run_each("original", ["", "\n", "not toml ["])
def test_a_file_without_anything_to_keep_is_nvidia_ctks(original: str) -> None:
    assert engine_files.with_imports(original, "version = 2\n") == "version = 2\n"


def test_a_file_that_was_changed_in_more_than_imports_is_nvidia_ctks() -> None:
    produced = "version = 1\n[plugins.cri]\nx = 1\n"
    assert engine_files.with_imports("# ours\n[plugins.cri]\n", produced) == produced


def test_the_default_runtime_is_given_back_to_docker() -> None:
    text = json.dumps({**SITE, "default-runtime": "nvidia"})
    assert json.loads(engine_files.without_default(text)) == {**SITE, "default-runtime": "runc"}
    assert engine_files.without_default(json.dumps(SITE)) == json.dumps(SITE)


BOTH = "docker.service gives dockerd --default-runtime nvidia: it does not start with both"


def test_dockerd_starts_with_one_default_runtime_only() -> None:
    bare = {"runtimes": DAEMON["runtimes"]}
    given = [one(docker({**bare, **more}) + "@default nvidia\n") for more in ({}, {"default-runtime": "nvidia"})]
    assert [engines.refused("docker", engine) for engine in given] == [
        "",
        f"/etc/docker/daemon.json has default-runtime, and {BOTH}",
    ]
    assert engines.differences("docker", given[0], True) == []
    assert engines.differences("docker", given[0], False) == [
        "the default runtime is nvidia, by --default-runtime in docker.service"
    ]
    assert "--set-as-default" not in engines.command(given[0], "docker", True, True)
    other = replace(given[0], default="kata")
    assert engines.differences("docker", other, True) == [
        "the default runtime is kata, by --default-runtime in docker.service"
    ]


@run_each(
    ("key", "flag", "told"),
    [
        ("hosts", "-H", "hosts, and docker.service gives dockerd -H: it does not start with both"),
        ("log-opts", "--log-opt", "log-opts, and docker.service gives dockerd --log-opt:"),
        ("insecure-registries", "--insecure-registry", "insecure-registries, and"),
        ("containerd", "--containerd", "containerd, and"),
        ("debug", "-D", "debug, and docker.service gives dockerd -D:"),
        ("live-restore", "--live-restore", "live-restore, and"),
        ("runtimes", "--add-runtime", ""),
        ("hosts", "--containerd", ""),
    ],
)
def test_dockerd_does_not_start_with_a_setting_in_both_places(key: str, flag: str, told: str) -> None:
    engine = one(docker({**DAEMON, key: DAEMON.get(key, [])}) + f"@flag {flag}\n")
    refused = engines.refused("docker", engine)
    assert (told in refused and refused.startswith("/etc/docker/daemon.json has ")) if told else not refused, refused


def test_a_daemon_that_reads_another_file_gets_none_that_it_does_not_read() -> None:
    told = "docker.service has dockerd read /srv/docker.json (--config-file), and not /etc/docker/daemon.json"
    assert engines.differences("docker", one(docker() + "@config /srv/docker.json\n"), False) == [told]
    assert engines.differences("docker", one(docker() + "@config /etc/docker/daemon.json\n"), False) == []


BESIDE = ["--drop-in-config=/etc/containerd/conf.d/99-nvidia.toml"]
FIRST = '# a comment\n[plugins.cri]\n  sandbox_image = "x"\n'


@run_each(
    ("name", "text", "options", "told"),
    [
        ("docker", docker(), (False, True), []),
        ("docker", docker(version="27.0.1"), (True, True), ["--set-as-default", "--enable-cdi"]),
        ("containerd", containerd(), (True, True), ["--set-as-default", *BESIDE]),
        ("containerd", containerd(version="1.7.24"), (False, True), ["--enable-cdi", *BESIDE]),
        ("containerd", containerd(main=FIRST, drop_in="", version="1.7.24"), (False, True), ["--drop-in-config="]),
        ("containerd", containerd(main=FIRST, drop_in=""), (False, False), []),
        ("containerd", containerd(main="", drop_in=""), (False, True), BESIDE),
        (
            "containerd",
            containerd(main="version = 3\n", drop_in="", version="2.0.0"),
            (False, True),
            ["--enable-cdi", *BESIDE],
        ),
        # nvidia-ctk 1.18 and 1.19 have a default of their own there, in a folder that cri-o does not read.
        ("crio", crio(), (True, True), ["--set-as-default", "--drop-in-config=/etc/crio/crio.conf.d/99-nvidia.toml"]),
        ("crio", crio(), (True, False), ["--set-as-default"]),
    ],
)
def test_how_nvidia_ctk_is_told(name: str, text: str, options: tuple[bool, bool], told: list[str]) -> None:
    head = ["nvidia-ctk", "--quiet", "runtime", "configure", f"--runtime={name}", "--config-source=file"]
    assert engines.command(one(text), name, *options) == [*head, *told]
    assert engines.command(one(text), name, *options, "command")[5] == "--config-source=command"


@run_each(
    ("runc", "mine", "default", "told"),
    [
        (True, None, "", ["runtime nvidia has no SystemdCgroup, which runc has"]),
        (True, False, "nvidia", ["runtime nvidia has no SystemdCgroup, which runc has"]),
        (True, True, "", []),
        (None, None, "", []),
        (False, True, "", []),
    ],
)
def test_cgroups_are_systemds_where_those_of_runc_are(
    runc: bool | None, mine: bool | None, default: str, told: list[str]
) -> None:
    section = 'plugins."io.containerd.cri.v1.runtime"'
    dump = f'version = 3\n[{section}]\nenable_cdi = true\n[{section}.containerd]\ndefault_runtime_name = "{default}"\n'
    for name, program, cgroup in (("runc", "", runc), ("nvidia", "/usr/bin/nvidia-container-runtime", mine)):
        dump += f'[{section}.containerd.runtimes.{name}]\nruntime_type = "io.containerd.runc.v2"\n'
        dump += f'[{section}.containerd.runtimes.{name}.options]\nBinaryName = "{program}"\n'
        dump += "" if cgroup is None else f"SystemdCgroup = {str(cgroup).lower()}\n"
    engine = one(containerd(main="version = 3\n", drop_in="", dump=dump, version="2.1.4"))
    assert engines.differences("containerd", engine, bool(default)) == told


CONMON = "/usr/libexec/crio/conmon"
PACKAGED = """\
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
monitor_path = "{}"
"""


@run_each(
    ("monitor", "told"),
    [(CONMON, ["runtime nvidia has no monitor_path, which crun has"]), ("/usr/bin/conmon", []), ("conmon", [])],
)
def test_crios_monitor_is_that_of_its_own_runtime(monitor: str, told: list[str]) -> None:
    """The packages of cri-o have conmon in a folder that is on no PATH; nvidia-ctk reads crio.conf alone, which they do
    not have."""
    packaged = "/etc/crio/crio.conf.d/10-crio.conf"
    files = {packaged: PACKAGED.format(monitor), engines.DROP_INS["crio"]: CRIO_DROP_IN}
    engine = engine_output.Engine(
        version="1.33.0", files={path: engine_output.EngineFile(text=text) for path, text in files.items()}
    )
    assert engines.differences("crio", engine, False) == told
    finished = engine_files.with_needed(
        {engines.DROP_INS["crio"]: CRIO_DROP_IN}, "crio", False, engines.runtimes("crio", engine)
    )
    mine = tomllib.loads(finished[engines.DROP_INS["crio"]])["crio"]["runtime"]["runtimes"]["nvidia"]
    assert mine.get("monitor_path") == (monitor if told else None)
    assert engine_files.with_needed(finished, "crio", False, engines.runtimes("crio", engine)) == finished
    assert engine_files.with_needed({}, "crio", False, engines.runtimes("crio", engine)) == {}


@run_each("plugin", engines.CRI)
def test_the_runtime_is_found_in_every_version_of_the_configuration(plugin: str) -> None:
    section = {
        "enable_cdi": True,
        "containerd": {"default_runtime_name": "nvidia", "runtimes": {"nvidia": {"options": {"BinaryName": "/x"}}}},
    }
    assert engines.registered("containerd", {"plugins": {plugin: section}}) == ("/x", "nvidia", True)


def test_a_setting_of_another_drop_in_file_is_not_ours_to_hide() -> None:
    other = (
        '@file /etc/containerd/conf.d/10-site.toml 1\n [plugins."io.containerd.grpc.v1.cri"]\n  '
        'stream_server_port = "1"\n'
    )
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
    assert one(podman()).version == "4.3.1"


STREAMING = "[plugins.'io.containerd.grpc.v1.cri']\nstream_server_port = '0'\n"
SECOND = (
    "[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = true\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n"
)


# containerd 2 has a plugin of the old name, too: it keeps the streaming server.
def test_the_plugin_with_runtimes_is_the_one_that_is_read() -> None:
    text = f"version = 3\n{STREAMING}{SECOND}default_runtime_name = 'nvidia'\n"
    assert engines.registered("containerd", tomllib.loads(text)) == ("", "nvidia", True)


@run_each(
    ("text", "first"),
    [
        ("version = 2\n", False),
        ("\tversion = 2\n", False),
        ("version=3", False),
        ("version = 4 # of containerd 2.3\n", False),
        ("version = 1\n", True),
        ("[plugins.cri]\n", True),
        ("# nothing\n", False),
        ("", False),
        ("not toml [", False),
    ],
)
def test_a_file_of_version_1_is_known(text: str, first: bool) -> None:
    assert engines.first_version("containerd", one(containerd(main=text, drop_in="", dump="version = 2\n"))) is first


@run_each(
    ("version", "features", "flag"),
    [
        ("20.10.24", {}, False),
        ("27.5.1", {}, True),
        ("27.5.1", {"buildkit": True}, True),
        ("28.2.2", {}, False),
        ("28.3.3", {"buildkit": True}, False),
        ("28.3.3", {"cdi": False}, True),
    ],
)
def test_docker_is_told_of_cdi_where_it_does_not_have_it_by_itself(
    version: str, features: dict[str, bool], flag: bool
) -> None:
    engine = one(docker({"features": features}, version=version))
    assert ("--enable-cdi" in engines.command(engine, "docker", False, True)) is flag


# nvidia-ctk 1.17 writes features anew when it turns CDI on.
def test_features_that_nvidia_ctk_dropped_come_back() -> None:
    produced = json.dumps({"features": {"cdi": True}, "runtimes": {}})
    text = engine_files.with_features(json.dumps({"features": {"buildkit": True, "cdi": False}}), produced)
    assert json.loads(text) == {"features": {"buildkit": True, "cdi": True}, "runtimes": {}}
    for original in ("", "{}", '{"features": {}}'):
        assert engine_files.with_features(original, produced) == produced


TWO = '[plugins."io.containerd.grpc.v1.cri".containerd]'


@run_each(
    ("name", "text", "line"),
    [
        (
            "containerd",
            f'version = 2\n# ours\n{TWO}\n  default_runtime_name = "nvidia" # old\n',
            '  default_runtime_name = "runc"',
        ),
        ("containerd", f"version = 2\n{TWO} # here\nsnapshotter = 'x'\n", 'default_runtime_name = "runc"'),
        ("containerd", f"version = 2\n{TWO[:-1]}.runtimes.nvidia]\nx = 1\n", 'default_runtime_name = "runc"'),
        ("containerd", f"version = 3\n{SECOND}", 'default_runtime_name = "runc"'),
        ("crio", '[crio]\n[crio.runtime]\n# ours\ndefault_runtime = "nvidia"\n', 'default_runtime = "runc"'),
        ("crio", '[crio.runtime.runtimes.nvidia]\nruntime_type = "oci"\n', 'default_runtime = "runc"'),
    ],
)
def test_another_default_runtime_changes_nothing_else(name: str, text: str, line: str) -> None:
    made = engine_files.with_default(text, name, "runc")
    assert line in made.splitlines()
    assert {part for part in text.splitlines() if "default_runtime" not in part} <= set(made.splitlines())
    now, before = (
        {path: value for path, value in engine_runtimes.leaves(tomllib.loads(one)) if value != {}}
        for one in (made, text)
    )
    assert now == {**before, **{path: "runc" for path in now if "default_runtime" in path}}


@run_each("text", ["", "not toml [", "version = 2\n", "plugins = 1\n"])
def test_a_file_without_a_place_for_the_default_is_left_alone(text: str) -> None:
    assert engine_files.with_default(text, "containerd", "runc") == text


def test_containerd_1_begins_from_a_file_where_there_is_none() -> None:
    bare = engine_output.parse("@engine containerd\n@version containerd x 1.7.27\n@dump\n version = 2\n")["containerd"]
    assert engines.seed("containerd", bare) == "version = 2\n"
    assert engines.seed("containerd", replace(bare, version="2.1.4")) == ""
    assert engines.seed("containerd", one(containerd())) == ""
    assert engines.seed("docker", one(docker())) == ""
