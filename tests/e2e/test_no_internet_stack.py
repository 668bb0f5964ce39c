"""A bundle of as much as a spec can ask for, for two hosts without a route: NVIDIA's whole stack, and a driver from a
.run file.

Everything of NVIDIA's is a stand-in but its container runtime's programs; podman, DKMS, gcc and make are Debian's.
"""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuprov.simulate import container, inventory
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.repository.build import repository
from tests.e2e.machine import Machine, fresh
from tests.e2e.test_gpudirect import GDRCOPY
from tests.e2e.test_no_internet import CUT, gpuprov
from tests.pull.site import new_key

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
MODEL, VERSION = "H100-SXM5-80GB", "580.178.04"
BOARD = Description(
    gpu=Gpus(model=MODEL, count=8), nvswitch=3, hcas=2, driver=VERSION, repositories=("distribution", "nvidia"),
    container_toolkit=True, engines=("podman",), ofed=True,
)  # fmt: skip
PLAIN = Description(gpu=Gpus(model="L40S", count=2), driver=VERSION, repositories=("distribution", "nvidia"))
MODULES = {"rdma.umad", "gpudirect_rdma.dmabuf"}
"""Checks that fail here: of ib_umad and ib_uverbs, kernel modules that neither a container has nor these stand-ins of
OFED."""
STAGING, SITE, RUNFILE = "e2e-stack-staging", "e2e-stack-site", "e2e-stack-runfile"
HOSTS = {STAGING: BOARD, SITE: BOARD, RUNFILE: PLAIN}
MAKEFILE = """# A stand-in of nccl-tests: what `make` makes of it is a program that says so.
all:
\tmkdir -p $(BUILDDIR)
\tprintf '\\043!/bin/sh\\necho a gpuprov stand-in\\n' > $(BUILDDIR)/all_reduce_perf
\tchmod 755 $(BUILDDIR)/all_reduce_perf
"""


@pytest.fixture
def sites() -> Iterator[dict[str, Machine]]:
    with fresh(HOSTS) as made:
        yield made


@contextmanager
def serving(tmp_path: Path) -> Iterator[dict[str, tuple[str, str]]]:
    """What specs name by address, on a server while this lasts: by what it is, the address and the SHA-256."""
    folder = tmp_path / "served"
    folder.mkdir()
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        entry = tarfile.TarInfo("nccl-tests/Makefile")
        entry.size = len(MAKEFILE)
        archive.addfile(entry, io.BytesIO(MAKEFILE.encode()))
    known = repository(BOARD)
    found = {"nccl": content.getvalue()}
    found |= {"run": next((known / "runfile").glob("*.run")).read_bytes()}
    found |= {"doca": next((known / "doca").glob("doca-host*.deb")).read_bytes()}
    names = {"nccl": "nccl-tests.tar.gz", "run": f"NVIDIA-Linux-x86_64-{VERSION}.run", "doca": "doca-host.deb"}
    for what, data in found.items():
        (folder / names[what]).write_bytes(data)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer((container.gateway(STAGING), 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        at = f"http://{container.gateway(STAGING)}:{server.server_address[1]}"
        yield {what: (f"{at}/{names[what]}", hashlib.sha256(data).hexdigest()) for what, data in found.items()}
        server.shutdown()


def specs(served: dict[str, tuple[str, str]]) -> dict[str, dict[str, Any]]:
    named = {what: {"url": url, "sha256": digest} for what, (url, digest) in served.items()}
    board = {
        "gpu": {"model": MODEL, "count": 8},
        "nouveau": {},
        "nvidia_driver": {"version": "580", "source": "nvidia", "kernel_modules": "open"},
        "persistence": {},
        "fabric_manager": {},
        "dcgm": {"exporter": True},
        "cuda_toolkit": {"versions": ["12.4"]},
        "container_toolkit": {"runtimes": ["podman"]},
        "rdma": {
            "fabric": "infiniband",
            "opensm": {"elsewhere": True},
            "stack": "doca-ofed",
            "count": 2,
            "ofed": {"version": "25.10", **named["doca"]},
        },
        "gpudirect_rdma": {"gdrcopy": {"install": True}},
        "acceptance": {"nccl": {"source": named["nccl"]}},
    }
    plain = {
        "nouveau": {},
        "nvidia_driver": {"version": VERSION, "source": "runfile", "runfile": named["run"]},
        "mps": {"scope": "gpu"},
    }
    return {"board": board, "plain": plain}


def bundled(sites: dict[str, Machine], asked: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """A bundle, from a staging host that reaches all."""
    for folder, names in {"staging": (STAGING, RUNFILE), "hosts": (SITE, RUNFILE)}.items():
        (tmp_path / folder).mkdir()
        inventory.write([sites[name].host for name in names], tmp_path / folder / "hosts.yaml")
        of = {names[0]: asked["board"], RUNFILE: asked["plain"]}
        groups = {
            f"of_{number}": {"hosts": {name: {}}, "vars": {"gpuprov": spec}}
            for number, (name, spec) in enumerate(of.items())
        }
        (tmp_path / folder / "spec.yaml").write_text(json.dumps({"all": {"children": groups}}), encoding="utf-8")
    new_key(tmp_path)
    for name in (STAGING, SITE):
        sites[name].sh(GDRCOPY)
    sites[SITE].sh("rm -f /etc/apt/sources.list.d/gdrcopy.list; rm -rf /srv/gdrcopy")
    code, told, said = gpuprov(tmp_path, "apply", "staging", "--limit", STAGING, "--act", "prepare", "--yes", "--json")
    assert code == 0, (told, said)
    classes = [word for one in ("nvidia-sdk", "nvidia-doca", "unknown") for word in ("--accept-licence", one)]
    code, _, said = gpuprov(tmp_path, "bundle", "staging", "--key", "key", "--out", "out/bundle", *classes)
    assert code == 0, said


def wrong(host: dict[str, Any]) -> set[str]:
    return {row["check"] for row in host["results"] if row["status"] not in ("pass", "skip", "n/a")}


def test_two_stacks_without_a_route(sites: dict[str, Machine], tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        bundled(sites, specs(served), tmp_path)
    for name in (SITE, RUNFILE):
        sites[name].sh(CUT)
        assert "default" not in sites[name].sh("ip route")
    apply = ("apply", "hosts", "--yes", "--json", "--bundle", "out/bundle", "--signers", "out/bundle.allowed_signers")
    code, told, said = gpuprov(tmp_path, *apply)
    found = {host["host"]: host for host in told["hosts"]}
    assert {name: host["state"] for name, host in found.items()} == dict.fromkeys((SITE, RUNFILE), "changed"), said
    assert (code, wrong(found[SITE]), wrong(found[RUNFILE])) == (1, MODULES, set()), said
    installed = sites[SITE].sh("dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n'").split("\n")
    held = {"nvidia-fabricmanager", "datacenter-gpu-manager-4-core", "doca-ofed", "cuda-toolkit-12-4"}
    assert {name for name in held if f"hi {name}" not in installed} == set(), installed
    assert sites[SITE].sh("/opt/gpuprov/acceptance/nccl-*/bin/all_reduce_perf") == "a gpuprov stand-in\n"
    assert VERSION in sites[RUNFILE].sh("modinfo -k $(ls /lib/modules | head -n 1) -F version nvidia")
    _, told, said = gpuprov(tmp_path, *apply)
    assert {host["state"] for host in told["hosts"]} == {"unchanged"}, (told, said)
