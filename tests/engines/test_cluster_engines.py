"""k3s and MicroK8s through their restarts: the probe's own script, and stand-ins that write what containerd would
read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities.container_toolkit import registration
from gpuprov.capabilities.container_toolkit.registration import DONE, NOTHING, Told, enforce, register
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.rules import cluster_engines, engine_output, engines
from tests.capabilities.toolkit_host import BARE
from tests.engines.cluster_programs import K3S, MICROK8S
from tests.facts.probes import run_well

SYSTEMCTL = """case $* in
  -q\\ is-*\\ k3s.service) exit 0 ;; -q*) exit 3 ;; *ExecStart\\ k3s*) : ;;
  *) printf 'ActiveState=active\\nUnitFileState=enabled\\nExecMainStartTimestampMonotonic=5\\n' ;;
esac"""
PLACES = ("/etc/rancher", "/var/lib/rancher", "/var/snap/microk8s")


class Node:
    """A node below a folder, with NVIDIA's runtime on the path of its daemons."""

    def __init__(self, root: Path) -> None:
        self.root, self.told = root, []  # type: ignore[var-annotated]
        for name, text in {"k3s": K3S, "microk8s": MICROK8S}.items():
            (root / name).write_text(text, encoding="utf-8")
        self.write({cluster_engines.TEMPLATE: BARE})
        self.first: dict[str, str] = {cluster_engines.TEMPLATE: BARE}

    def add_toolkit(self) -> None:
        program = self.root / "usr/bin/nvidia-container-runtime"
        program.parent.mkdir(parents=True)
        program.touch()
        program.chmod(0o755)

    def start(self, name: str) -> None:
        env = {"PATH": f"{self.root}/usr/bin:/usr/bin:/bin", "ROOT": str(self.root)}
        subprocess.run(["sh", str(self.root / name), "server", "once"], check=True, env=env)

    def read(self) -> str:
        programs = {"systemctl": SYSTEMCTL, "k3s": f'exec sh {self.root}/k3s "$@"'}
        return run_well(ENGINES.script, self.root, programs, PLACES).text.replace(str(self.root), "")

    def engine(self, name: str) -> engine_output.Engine:
        return engine_output.parse(self.read())[name]

    def write(self, files: dict[str, str]) -> None:
        for path, text in files.items():
            place = Path(f"{self.root}{path}")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")

    def tell(self, verb: str, unit: str) -> None:
        self.told.append(f"{verb} {unit}")
        self.start("k3s" if unit.startswith("k3s") else "microk8s")

    def back(self) -> None:
        self.write(self.first)

    def restore(self) -> None:
        raise AssertionError("nvidia-ctk has no part in it")

    def configure(self, command: list[str]) -> tuple[int, str, dict[str, str]]:
        raise AssertionError(command)

    def give_up(self, name: str) -> None:
        raise AssertionError(name)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(registration, "PAUSE", 0.0)
    os.umask(0o022)
    return Node(tmp_path)


@pytest.mark.install
def test_k3s_finds_the_runtime_when_it_is_restarted(node: Node) -> None:
    node.write({"/etc/rancher/k3s/config.yaml": "token: s3cret\ndefault-runtime: crun\n"})
    node.start("k3s")
    node.add_toolkit()
    assert "no runtime nvidia" in engines.in_force("k3s", node.engine("k3s"), default=False)
    assert enforce(node, "k3s", default=False) == Told(changed=True)
    assert node.told == ["restart k3s.service"]
    assert enforce(node, "k3s", default=False) == Told(changed=False), "a second apply restarts nothing"
    text = cluster_engines.derive_drop_in("k3s", node.engine("k3s"), default=True)
    node.write({cluster_engines.SETTINGS["k3s"]: text})
    assert enforce(node, "k3s", default=True) == Told(changed=True)
    assert engines.in_force("k3s", node.engine("k3s"), default=True) == ""
    node.write({"/etc/rancher/k3s/config.yaml": "default-runtime: nvidia\n"})
    text = cluster_engines.derive_drop_in("k3s", node.engine("k3s"), default=False)
    assert text == "default-runtime: runc\n", "the site's file has it, and the spec does not ask for it"
    node.write({cluster_engines.SETTINGS["k3s"]: text})
    assert enforce(node, "k3s", default=False) == Told(changed=True)
    assert len(node.told) == 3
    assert "s3cret" not in node.read()


@pytest.mark.install
def test_microk8s_fills_in_the_template(node: Node) -> None:
    node.start("microk8s")
    for default in (False, True, False):
        assert register(node, "microk8s", default) == DONE
        assert enforce(node, "microk8s", default) == Told(changed=True)
        assert (register(node, "microk8s", default), enforce(node, "microk8s", default)) == (
            NOTHING,
            Told(changed=False),
        )
    assert node.told == ["restart snap.microk8s.daemon-containerd.service"] * 3
