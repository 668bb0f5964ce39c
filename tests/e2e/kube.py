"""A real Kubernetes API server and etcd on loopback, built once from their Go modules.

There is no kubelet, scheduler or controller: the tests do what these would.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprov.simulate import golang, image, tools

VERSION = "1.31.4"
"""Of k8s.io/kubernetes; the modules that it is made of have 0 in the place of 1."""
WHAT = "the Kubernetes API server"
PROGRAMS = {"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "etcd": "go.etcd.io/etcd/server/v3"}
ETCD = "3.5.13"
PATIENCE = 60.0


def built() -> Path:
    """The folder with both programs: cached, or built now, which takes eight minutes of a processor."""
    folder = image.cache_dir() / f"kube-apiserver-{VERSION}-etcd-{ETCD}"
    with image.alone(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            work = folder.with_name(f".{folder.name}.{os.getpid()}")
            work.mkdir()
            try:
                _build(work)
                os.replace(work, folder)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return folder


def _build(work: Path) -> None:
    """Kubernetes' go.mod replaces its parts by folders beside it: a module of ours replaces them by their published
    versions."""
    go = golang.go(WHAT)
    environment = {**os.environ, "GOFLAGS": "-trimpath -mod=mod", "CGO_ENABLED": "0"}
    source = golang.sources(WHAT, "k8s.io/kubernetes", VERSION)
    replaced = [line.split()[0] for line in (source / "go.mod").read_text().splitlines() if "=> ./staging/" in line]
    lines = ["module lab", f"require k8s.io/kubernetes v{VERSION}", f"require go.etcd.io/etcd/server/v3 v{ETCD}"]
    lines += [f"replace {name} => {name} v0.{VERSION.removeprefix('1.')}" for name in replaced]
    (work / "go.mod").write_text("\n".join(lines) + "\n")
    for name, module in PROGRAMS.items():
        command = [go, "-C", str(work), "build", "-ldflags=-s -w", "-o", name, module]
        tools.run(command, environment=environment, timeout=3600)


@dataclass
class Kube:
    """A cluster of objects, as one user of it."""

    folder: Path
    port: int
    token: str

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """What kubectl says. Raises where it fails."""
        command = ["kubectl", f"--kubeconfig={self.folder / 'config'}", *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def create(self, kind: str, name: str, metadata: dict[str, Any], spec: dict[str, Any], api: str = "v1") -> None:
        """Make an object."""
        text = {"apiVersion": api, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
        self.kubectl("create", "-f", "-", stdin=json.dumps(text))

    def status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        """Say what a kubelet or controller would."""
        self.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))

    def pod(self, name: str, node: str, owner: str = "ReplicaSet", **more: Any) -> None:
        """A running pod of a controller of this kind; of none: "". `more`: metadata, volumes, nodeSelector."""
        metadata = {"namespace": "default", **more.pop("metadata", {})}
        if owner:
            kind = {"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "1", "controller": True}
            metadata["ownerReferences"] = [kind]
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "none"}], **more}
        self.create("Pod", name, metadata, spec)
        self.status("pod", name, {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})

    def ended(self, name: str) -> None:
        """What a kubelet does when a pod has ended."""
        self.kubectl("delete", "pod", name, "--grace-period=0", "--force")

    def node(self, name: str) -> dict[str, Any]:
        """A node, as the server has it."""
        found: dict[str, Any] = json.loads(self.kubectl("get", "node", name, "-o", "json"))
        return found


@contextmanager
def running(folder: Path) -> Iterator[Kube]:
    """A server on ports of its own."""
    programs = built()
    client, peer, port = _free(), _free(), _free()
    token = secrets.token_hex()
    (folder / "tokens").write_text(f'{token},admin,1,"system:masters"\n{token}x,drainer,2\n')
    subprocess.run(["openssl", "genrsa", "-out", folder / "key", "2048"], check=True, capture_output=True)
    etcd, api = f"http://127.0.0.1:{client}", f"https://127.0.0.1:{port}"
    commands: tuple[list[str | Path], ...] = (
        [
            programs / "etcd", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=error",
            f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        ],
        [
            programs / "kube-apiserver", f"--etcd-servers={etcd}", f"--cert-dir={folder / 'certs'}",
            "--bind-address=127.0.0.1", f"--secure-port={port}", "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={folder / 'key'}",
            f"--service-account-signing-key-file={folder / 'key'}", f"--token-auth-file={folder / 'tokens'}",
            "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
        ],
    )  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    with (folder / "log").open("wb") as log:
        try:
            for command in commands:
                started.append(subprocess.Popen(command, stdout=log, stderr=log))
            kube = Kube(folder, port, token)
            for name, word in (("config", token), ("drainer", f"{token}x")):
                (folder / name).write_text(json.dumps(_config(api, word)))
            _wait(kube)
            yield kube
        finally:
            for one in reversed(started):
                one.terminate()
            for one in started:
                with suppress(subprocess.TimeoutExpired):
                    one.wait(20)
                one.kill()


def _config(api: str, token: str) -> dict[str, Any]:
    """A configuration of kubectl's. The server's certificate is its own."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": api, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "lab", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    }


def _wait(kube: Kube) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            kube.kubectl("get", "--raw", "/readyz")
            kube.kubectl("get", "namespace", "default")
            return
        except AssertionError as problem:
            if time.monotonic() > end:
                log = (kube.folder / "log").read_text(errors="replace")[-3000:]
                raise AssertionError(f"no API server: {problem}\n{log}") from problem
            time.sleep(0.5)


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.stdout.write(f"{built()}\n")
