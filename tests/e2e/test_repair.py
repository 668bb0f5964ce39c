"""gpuprov repair of a simulated host with two H100: what a reset ends, what only a boot ends, and what needs hands."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.simulate import container, faults, hosts, inventory
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.parts.kernel_log import LOG
from tests.e2e.lab import GPUPROV, loaded

pytestmark = pytest.mark.e2e
GPU = Gpus(model="H100-SXM5-80GB", count=2)
NAME = "e2e-repair"
SPEC = {"gpu": {"model": GPU.model, "count": GPU.count}, "health": {}}
LIMIT = 900


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "spec.yaml").write_text(json.dumps({"all": {"vars": {"gpuprov": SPEC}}}))

    def run(self, verb: str, *options: str) -> tuple[int, dict[str, Any]]:
        done = self._start(verb, str(self.folder / "hosts.yaml"), str(self.folder / "spec.yaml"), "--json", *options)
        assert done.stdout, done.stderr
        (host,) = json.loads(done.stdout)["hosts"]
        return done.returncode, host

    def call(self, *words: str, code: int = 0) -> str:
        """What a verb that ends with this code wrote."""
        done = self._start(*words)
        assert done.returncode == code, done
        results = self.folder / "results"
        return done.stdout + done.stderr + "".join(file.read_text() for file in sorted(results.glob("*.json")))

    def _start(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "XDG_STATE_HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder)}
        command = [GPUPROV, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp(NAME)
    description = Description(gpu=GPU)
    with loaded(NAME, description):
        inventory.write([hosts.up(NAME, description)], folder / "hosts.yaml")
        yield Site(folder)


def test_a_reset_a_reboot_and_a_ticket(site: Site) -> None:
    code, host = site.run("repair", "--yes")
    assert (code, host["state"], host["tries"]) == (0, "fit", []), host

    for item in ("gpu-reset-required=1", "xid-reset=1"):
        faults.plant(NAME, item, hosts.run)
    code, host = site.run("repair", "--check")
    assert (code, host["state"], host["plan"]["step"]) == (1, "planned", "reset"), host
    assert [(gpu["index"], gpu["address"]) for gpu in host["plan"]["gpus"]] == [(1, "0001:11:00.0")]
    assert host["plan"]["gpus"][0]["uuid"].startswith("GPU-")
    code, host = site.run("repair", "--yes")
    assert (code, host["state"]) == (0, "repaired"), host
    assert [(tried["act"], tried["problem"], tried["after"]) for tried in host["tries"]] == [("reset", "", "yes")]
    code, judged = site.run("health")
    assert (code, judged["fit"]) == (0, "yes"), judged
    assert "Xid" in container.run(NAME, f"cat {LOG}"), "the lines are still there, and past"

    faults.plant(NAME, "gpu-reset-fails=0", hosts.run)
    code, host = site.run("repair", "--yes")
    assert (code, host["state"]) == (3, "given up"), host
    assert "--gpu-reset" in host["tries"][0]["problem"]
    code, host = site.run("repair", "--yes", "--reboot")
    assert (code, host["state"]) == (0, "repaired"), host
    assert [tried["act"] for tried in host["tries"]] == ["reset", "reboot"]
    assert [bool(tried["problem"]) for tried in host["tries"]] == [True, False], host["tries"]
    faults.heal(NAME, "gpu-reset-fails", hosts.run)
    assert not container.run(NAME, "ls /run/gpuprov | grep -x lock || true").strip(), "the lock is given back"

    faults.plant(NAME, "gpu-row-failed=0", hosts.run)
    code, host = site.run("repair", "--yes", "--ticket-dir", str(site.folder / "tickets"))
    assert (code, host["state"], host["tries"]) == (3, "given up", []), host
    page, document = sorted((site.folder / "tickets").iterdir())
    assert "has a remapping that failed" in page.read_text()
    assert json.loads(document.read_text())["hosts"][0]["left"][0]["action"] == "return"
    faults.heal(NAME, "gpu-row-failed", hosts.run)
    acts = [json.loads(line)["act"] for line in container.run(NAME, "cat /var/lib/gpuprov/repairs.jsonl").splitlines()]
    assert acts == ["reset", "repaired", "reset", "given up", "reset", "reboot", "repaired"]


def test_a_process_on_a_gpu_is_not_ended(site: Site) -> None:
    faults.plant(NAME, "gpu-reset-required=0", hosts.run)
    container.run(NAME, "systemd-run --quiet --unit job sh -c 'exec 3</dev/nvidia1; exec sleep infinity'")
    try:
        code, host = site.run("repair", "--yes")
        assert (code, host["state"]) == (3, "refused"), host
        assert "in use by sleep" in host["message"]
        assert container.run(NAME, "systemctl is-active job").strip() == "active"
    finally:
        container.run(NAME, "systemctl stop job")
        faults.heal(NAME, "gpu-reset-required", hosts.run)


def test_a_roll_out_repairs_a_host_before_it_changes_it(site: Site) -> None:
    """As many as it may, each once; a host that is left unfit is left unchanged."""
    spec = json.loads((site.folder / "spec.yaml").read_text())
    spec["all"]["vars"]["gpuprov"]["kernel"] = {"sysctl": {"net.ipv4.tcp_keepalive_time": 611}}
    (site.folder / "changed.yaml").write_text(json.dumps(spec))
    frozen, jobs = site.folder / "fleet.json", site.folder / "jobs"
    site.call("fleet", "freeze", str(site.folder / "hosts.yaml"), str(site.folder / "changed.yaml"), "-o", str(frozen))
    site.call("fleet", "slice", str(frozen), "-o", str(jobs))
    (job,) = jobs.glob("*.json")
    words = ("fleet", "work", str(job), "--act", "apply", "--results", str(site.folder / "results"))
    faults.plant(NAME, "gpu-reset-required=1", hosts.run)

    done = site.call(*words, "--run", "none-left", "--repair", "0", code=3)
    assert "no repair is left for it" in done
    assert container.run(NAME, "cat /proc/sys/net/ipv4/tcp_keepalive_time").strip() != "611"

    assert '"repair":"done"' in site.call(*words, "--run", "one", "--repair", "1").replace(" ", "")
    assert container.run(NAME, "cat /proc/sys/net/ipv4/tcp_keepalive_time").strip() == "611"
    assert site.run("health")[1]["fit"] == "yes"
