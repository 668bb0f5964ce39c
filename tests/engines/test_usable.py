"""What makes a runtime usable beside its program, in the configuration of each engine: seen, and brought about."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from gpuprov.rules import engine_files, engine_output, engines
from tests.capabilities.toolkit_host import DAEMON
from tests.capabilities.toolkit_host import containerd as containerd_text
from tests.capabilities.toolkit_host import crio as crio_text
from tests.capabilities.toolkit_host import docker as docker_text
from tests.engines.test_engines import one
from tests.rows import run_each

PROGRAM = "/usr/bin/nvidia-container-runtime"
UNTYPED = "runtime nvidia has no runtime_type, without which no container of it is created"
PLUGINS = {
    "1.6.20": "io.containerd.grpc.v1.cri",
    "1.7.27": "io.containerd.grpc.v1.cri",
    "2.3.0": "io.containerd.cri.v1.runtime",
}
RUNC = {"runc": {"runtime_type": "io.containerd.runc.v2", "options": {}}}


def toml(table: dict[str, Any], *path: str) -> str:
    """A table as text."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    head = f"[{'.'.join(json.dumps(part) for part in path)}]\n" if path else ""
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in plain.items())
    return head + lines + "".join(toml(value, *path, key) for key, value in table.items() if isinstance(value, dict))


def containerd(
    version: str, nvidia: dict[str, Any], default: str = "runc", others: dict[str, Any] | None = None
) -> engine_output.Engine:
    """containerd with this runtime, as its dump tells it."""
    mine = {**nvidia, "options": {"BinaryName": PROGRAM, **nvidia.get("options", {})}}
    tables = {"default_runtime_name": default, "runtimes": {**(RUNC if others is None else others), "nvidia": mine}}
    dump = f"version = {2 if version < '2' else 3}\n" + toml(
        {"enable_cdi": True, "containerd": tables}, "plugins", PLUGINS[version]
    )
    return one(containerd_text(main="version = 2\n", drop_in="", dump=dump, version=version))


@run_each("version", PLUGINS)
@run_each(
    ("kind", "options", "told", "gone"),
    [
        ("io.containerd.runc.v2", {}, "", ""),
        (None, {}, UNTYPED, UNTYPED),
        ("", {}, UNTYPED, UNTYPED),
        ("io.containerd.runc.v1", {}, "", "of type io.containerd.runc.v1, and not io.containerd.runc.v2"),
        ("io.containerd.runtime.v1.linux", {"Runtime": PROGRAM}, "", "of type io.containerd.runtime.v1.linux, and not"),
        (
            "io.containerd.runtime.v1.linux",
            {},
            "of type io.containerd.runtime.v1.linux",
            "of type io.containerd.runtime.v1.linux",
        ),
        ("io.containerd.kata.v2", {}, "which runs its program", "which runs its program"),
        (2, {}, "of type 2", "of type 2"),
    ],
)
def test_a_runtime_of_containerds_has_a_type_that_runs_its_program(
    version: str, kind: object, options: dict[str, str], told: str, gone: str
) -> None:
    engine = containerd(version, {"options": options} if kind is None else {"runtime_type": kind, "options": options})
    expected = gone if version.startswith("2") else told
    found = engines.differences("containerd", engine, False)
    assert len(found) == bool(expected), found
    assert expected in "".join(found)


@run_each(("default", "others", "told"), [
    ("runc", None, []),
    ("kata", None, ["the default runtime is kata, which is not among the runtimes"]),
    ("runc", {}, ["the default runtime is runc, which is not among the runtimes"]),
    ("", None, []),
])  # fmt: skip
def test_the_default_runtime_of_containerd_is_one_that_it_has(
    default: str, others: dict[str, Any] | None, told: list[str]
) -> None:
    engine = containerd("2.3.0", RUNC["runc"], default, others)
    assert engines.differences("containerd", engine, False) == told
    asked = engines.differences("containerd", engine, True)
    assert asked == [f"the default runtime is {default or 'runc'}"], "nvidia-ctk makes NVIDIA's the default one"


@run_each(("config", "told"), [
    ({"default-runtime": "kata"}, ["the default runtime is kata, which is not among the runtimes"]),
    ({"default-runtime": "runc"}, []),
    ({"default-runtime": "io.containerd.runc.v2"}, []),
    ({"runtimes": {"nvidia": {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": PROGRAM}}}}, []),
    ({"runtimes": {"nvidia": {"runtimeType": "io.containerd.kata.v2"}}}, ["no runtime nvidia"]),
    ({"runtimes": {"nvidia": {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": PROGRAM},
                              "path": PROGRAM}}},
     ["runtime nvidia has both path and runtimeType: docker does not start with both"]),
])  # fmt: skip
def test_what_docker_does_not_start_with(config: dict[str, Any], told: list[str]) -> None:
    assert engines.differences("docker", one(docker_text({**DAEMON, **config})), False) == told


@run_each(("kind", "told"), [
    ('runtime_type = "oci"\n', []),
    ('runtime_type = ""\n', []),
    ("", []),
    ('runtime_type = "vm"\n', ["runtime nvidia is of type vm, and not oci, which runs its program"]),
])  # fmt: skip
def test_a_runtime_of_crios_is_oci(kind: str, told: list[str]) -> None:
    text = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{PROGRAM}"\n{kind}'
    engine = one(crio_text(text))
    assert engines.differences("crio", engine, False) == told
    written = engine_files.with_needed({"a": text}, "crio", False, engines.runtimes("crio", engine))["a"]
    assert engines.differences("crio", one(crio_text(written)), False) == []


def test_crios_default_runtime_is_one_that_it_has() -> None:
    text = f'[crio.runtime]\ndefault_runtime = "kata"\n[crio.runtime.runtimes.nvidia]\nruntime_path = "{PROGRAM}"\n'
    told = "the default runtime is kata, which is not among the runtimes"
    assert engines.differences("crio", one(crio_text(text)), False) == [told]
    assert engines.differences("crio", one(crio_text(text.replace("kata", "crun"))), False) == []


CRI = 'plugins."io.containerd.cri.v1.runtime".containerd.runtimes'
WRITTEN = f"""\
version = 3
[{CRI}.runc]
  runtime_type = "" # of the site's
[{CRI}.nvidia]
RUNTIME
[{CRI}.nvidia.options]
  BinaryName = "{PROGRAM}"
[{CRI}.kata]
runtime_type = "io.containerd.kata.v2"
"""


@run_each("line", ["", 'runtime_type = ""', '  runtime_type = "io.containerd.runtime.v1.linux"', "# runtime_type"])
def test_the_type_is_written_into_nvidias_runtime_and_no_other(line: str) -> None:
    """nvidia-ctk before 1.20 leaves it out where the runtime that it copies has none."""
    text = WRITTEN.replace("RUNTIME", line)
    section = tomllib.loads(text)["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]
    written = engine_files.with_needed({"main": "", "last": text}, "containerd", False, section)
    assert written["main"] == ""
    read = tomllib.loads(written["last"])["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert read["nvidia"] == {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": PROGRAM}}
    assert {name: table["runtime_type"] for name, table in read.items() if name != "nvidia"} == {
        "runc": "", "kata": "io.containerd.kata.v2"}  # fmt: skip
    assert "# of the site's" in written["last"]
    again = engine_files.with_needed(written, "containerd", False, section)
    assert again == written
