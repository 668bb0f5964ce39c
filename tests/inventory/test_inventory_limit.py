"""`--limit` means what it means to Ansible."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.inventory import load
from gpuprov.inventory.limit import make_absolute
from gpuprov.spec.problem import SpecError
from tests.inventory.files import lay

TEXT = """\
all:
  children:
    training: {hosts: {"gpu[01:06]": {}}}
    inference: {hosts: {"inf[1:3].example.org": {}, gpu06: {}}}
    site: {children: {training: {}, inference: {}}}
  hosts: {lone: {}, "fe80::1": {}}
"""

PATTERNS = [
    "all", "*", "training", "gpu03", "gpu*", "training:inference", "training,inference", "training:&inference",
    "all:!training", "!training", "&inference", "training[0]", "training[-1]", "training[1:2]",
    "training[2:]", "~gpu0[12]$", "~(gpu|inf).*[23]", "*.example.org", "inf?.example.org", "site:!gpu0[!1]",
    "ungrouped", "lone,gpu02", "@retry", "@retry:!gpu02", "gpu01 , gpu02", "fe80::1", "gpu01,fe80::1", "train*:&gpu0*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_as_ansible(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader

    monkeypatch.chdir(tmp_path)
    lay({"inventory.yaml": TEXT, "retry": "gpu02\nlone\n"})
    manager = InventoryManager(loader=DataLoader(), sources=[str(tmp_path / "inventory.yaml")])
    manager.subset(pattern)
    wanted = {host.name for host in manager.get_hosts()}
    hosts = [host.name for host in load(["inventory.yaml"], limit=pattern, cache=False).hosts]
    assert set(hosts) == wanted != set()
    order = list(manager.hosts)
    assert hosts == sorted(hosts, key=order.index)


def test_files_of_a_pattern_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = {"training": "training", "@a": f"@{tmp_path}/a", "@a,!gpu1": f"@{tmp_path}/a,!gpu1", "x:@/a:&y": "x,@/a,&y"}
    assert {limit: make_absolute(limit) for limit in told} == told


@pytest.mark.parametrize(
    "pattern", ["gpu[{}]", "gpu[-{}]", "gpu[1:{}]", "gpu[{}:]", "gpu[{}:2]", "gpu[1:{}]x", "lone,gpu[{}]"]
)
def test_a_number_of_too_many_digits(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay({"inventory.yaml": TEXT})
    with pytest.raises(SpecError) as caught:
        load(["inventory.yaml"], limit=pattern.format("9" * 5000), cache=False)
    [problem] = caught.value.problems
    assert "has a number of too many digits" in problem.message
    assert problem.fix == "allowed: 18 digits"
    assert len(problem.message) < 100


def test_a_file_that_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay({"inventory.yaml": TEXT})
    with pytest.raises(SpecError) as caught:
        load(["inventory.yaml"], limit="@", cache=False)
    [problem] = caught.value.problems
    assert problem.message == '--limit: no file is named after "@"'
    assert problem.fix == "write @FILE, a file of hosts"


@pytest.mark.parametrize(
    ("limit", "fix"),
    [
        ("b[01-04]", "write b[01:04]"),
        ("b{1..4}", "write b[1:4]"),
        ("a,b[01-04,06]", "write b[01:04],b06"),
        ("c[01,02].site", "write c01.site,c02.site"),
        ("b[1,2]-ib[0-1]", "write each host, with commas between them"),
    ],
)
def test_ranges_of_the_shell_and_of_slurm_are_told_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, fix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    lay({"inventory.yaml": TEXT})
    with pytest.raises(SpecError) as caught:
        load(["inventory.yaml"], limit=limit, cache=False)
    assert [problem.fix for problem in caught.value.problems] == [fix]


def test_remarks_in_a_file_of_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay({"inventory.yaml": TEXT})
    everything = [host.name for host in load(["inventory.yaml"], cache=False).hosts]
    (tmp_path / "hosts").write_text(f"# the first\n{everything[0]}\n")
    assert [host.name for host in load(["inventory.yaml"], limit="@hosts", cache=False).hosts] == everything[:1]
