"""Every command, where every word that hosts answer and every text of the inventory is a canary: none flies, no command
falls."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from gpuprov.__main__ import main
from gpuprov.inventory import load
from tests.taint.canary import Nest
from tests.taint.transport import answers, poisoned, serve

HOSTS = 31
SPECS = """
a: {gpu: {model: H100-SXM5-80GB, count: 1}, nouveau: {}, kernel: {sysctl: {vm.swappiness: 60}}, persistence: {},
    topology: {}, pcie: {}, nvidia_driver: {version: "535", kernel_modules: proprietary}, cuda_toolkit: {versions: ["12.2"]},
    fabric_manager: {}, rdma: {}, gpudirect_rdma: {}, container_toolkit: {}, dcgm: {}, acceptance: {}, kubernetes: {}}
b: {nvidia_driver: {version: "535"}, mps: {}, rdma: {fabric: roce}}
c: {gpu: {model: H100-SXM5-80GB, count: 1}, nvidia_driver: {version: "535"}, cgpu: {}}
d: {gpu: {model: H100-SXM5-80GB, count: 1}, nvidia_driver: {version: "535"}, mig: {layout: [{gpus: all, instances: {1g.10gb: 7}}]}}
e: {vgpu_guest: {}}
f: {gpu: {model: H100-SXM5-80GB, count: 1}, gpu_settings: {power_limit: 500, ecc: enabled}, readings: {},
    health: {since: 7d, program_errors: fail, pcie_replays: 1, link_downed: 1, port_errors: 0, sockets: 2, cores: 8, memory: 2000,
             swap: none, nvme: 8, interfaces: [eth0], mounts: [/, /home]}}
"""


@pytest.fixture
def nest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nest:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return Nest(tmp_path / "nest")


def run(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    """One command, in this process; an exception that is not a message of gpuprov's comes through."""
    monkeypatch.setattr(sys, "argv", ["gpuprov", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def inventory(file: Path, hosts: int) -> Path:
    """Hosts with each of the specs."""
    specs = yaml.safe_load(SPECS)
    groups = {
        name: {"vars": {"gpuprov": spec}, "hosts": {f"{name}{n}": {} for n in range(hosts)}}
        for name, spec in specs.items()
    }
    file.write_text(yaml.safe_dump({"all": {"children": groups}}))
    return file


@pytest.mark.install
def test_no_word_of_a_host_is_more_than_data(
    nest: Nest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every word of every probe, spread over hosts, so that most of each answer is still what it should be."""
    file = inventory(tmp_path / "inventory.yaml", HOSTS)
    texts = answers()
    serve(
        monkeypatch,
        {f"{name}{n}": poisoned(texts, nest, n, HOSTS) for name in yaml.safe_load(SPECS) for n in range(HOSTS)},
    )
    made = nest.count
    assert run(monkeypatch, "verify", file, "--junit", "v.xml", "--html", "v.html") == 1
    assert run(monkeypatch, "verify", file, "--json", "--verbose") == 1
    assert run(monkeypatch, "plan", "--quick", "--verbose", file) == 1
    assert run(monkeypatch, "plan", "--quick", "--json", file) == 1
    assert run(monkeypatch, "topology", "all", file) in (0, 1)
    assert run(monkeypatch, "topology", "a0", file, "--svg", "t.svg") in (0, 1)
    assert run(monkeypatch, "plan", "--quick", "--html", "p.html", file) == 1
    pages = ("--html", "h.html", "--junit", "h.xml", "--prometheus", "h.prom")
    assert run(monkeypatch, "health", file, "--verbose", *pages) == 1
    assert run(monkeypatch, "health", file, "--json") == 1
    assert run(monkeypatch, "verify", file, "--prometheus", "v.prom") == 1
    assert run(monkeypatch, "drift", file) == 1
    assert run(monkeypatch, "drift", file, "--json") == 1
    assert run(monkeypatch, "diff", "a0", "a1", "-i", file) in (0, 1)
    assert run(monkeypatch, "diff", "f0", "b1", "-i", file, "--json") in (0, 1)
    assert run(monkeypatch, "init", "--from-hosts", "all", "-i", file, "--out", "new.yaml") in (0, 1, 2, 4)
    assert run(monkeypatch, "capture", "all", "-i", file, "--out", "captures") in (0, 1)
    assert run(monkeypatch, "verify", file, "--from", "captures") in (0, 1)
    written = [path for path in tmp_path.rglob("*.*") if path.suffix in (".html", ".xml", ".prom", ".svg", ".json")]
    assert {"v.html", "p.html", "h.html", "h.xml", "h.prom", "v.prom"} <= {path.name for path in written}
    hidden = [path.name for path in written if re.search("[\x00-\x08\x0b-\x1f\x7f]", path.read_text())]
    assert hidden == []
    for name, more in (("e.yaml", []), ("e.json", ["--json"])):
        assert run(monkeypatch, "export", file, "--out", name, "--mig-parted", "m.yaml", *more) == 0
    assert nest.flown() == []
    both = [{host.name: host.values for host in load([name]).hosts} for name in ("e.yaml", "e.json")]
    assert both[0] == both[1]
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    bugs = sorted(set(re.findall(r"[^\n]*bug in [^\n]*", told.out + told.err)))
    assert "\n".join(bugs) == ""
    live = [host for host, values in both[0].items() if "{{" in json.dumps(values)]
    assert len(live) >= 3, "no template came through as data, so nothing was shown"
    # What check says of them, it says in words: two hosts in one inventory are judged together, so each is asked alone.
    for host in live:
        assert run(monkeypatch, "check", "e.yaml", "--limit", host) in (0, 2)
        assert run(monkeypatch, "verify", "e.yaml", "--limit", host) in (0, 1, 2)
    assert nest.flown() == []
    capsys.readouterr()
    print(f"{made} words of {len(both[0])} hosts, {len(live)} exported as data with templates in them, none evaluated")
