"""Small files that would hang, end or fill the process: each is one clear error with its place, in a moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import files
from gpuprov.inventory import find_default_sources, load, ranges
from gpuprov.spec.problem import SpecError
from tests.core.safe_parse.test_reading import bomb
from tests.inventory.files import GOOD, lay

DEEP = "mappings and lists stand too deep in each other; allowed: 100 levels"
NO_FILE = "allowed: files and folders (pipes, sockets and devices are not read)"


def variables(text: str) -> str:
    return "all:\n  hosts: {a: }\n  vars:\n" + "".join(f"    {line}\n" for line in text.splitlines())


ROWS: dict[str, tuple[str, str]] = {
    "bomb.yaml": (variables(bomb(9)), "bomb.yaml:10:14: the aliases stand for too much; allowed: 1000000 values"),
    "ours.yaml": (
        variables("gpuprov:\n" + "\n".join(f"  {line}" for line in bomb(9).splitlines())),
        "ours.yaml:11:16: the aliases",
    ),
    "deep.yaml": ("all: {vars: {x: " + "[" * 50_000, f"deep.yaml:1:114: {DEEP}"),
    "deep.json": ("[" * 100_000, f"deep.json:1:101: {DEEP}"),
    "tab.json": ('\t{"all":\t' + "[" * 100_000, f"tab.json:1:109: {DEEP}"),
    "deep": ("[" * 100_000, "deep:1:1: a line that is too long"),
    "deep.toml": ("x = " + "[" * 50_000, f"deep.toml:1:105: {DEEP}"),
    "dots.toml": ("a" + ".a" * 20_000 + " = 1", f"dots.toml:1:1: {DEEP}"),
    "self.yaml": (
        "all:\n  children:\n    a: &a\n      children:\n        b: *a\n      hosts: {h: {}}\n",
        "self.yaml:5:12: *a refers to itself",
    ),
    "range.yaml": (
        "all:\n  hosts:\n    h[1:99999999]:\n",
        'range.yaml:3:5: "h[1:99999999]" is a range of 99999999 hosts; allowed: 100000 in one inventory',
    ),
    "ranges.yaml": (
        "all: {hosts: {'h[1:999][1:999]': }}",
        'ranges.yaml:1:15: "h[1:999][1:999]" is a range of 998001 hosts',
    ),
    "many.yaml": ("all: {hosts: {'" + "[1:1]" * 100 + "': }}", "has 100 ranges; allowed: 8"),
    "step.yaml": (
        "all: {hosts: {'h[1:9:0]': }}",
        'step.yaml:1:15: "h[1:9:0]" is a range with a step of 0; allowed: 1 or more',
    ),
    "digits.yaml": ("all: {hosts: {'h[1:" + "9" * 500 + "]': }}", "has a number of too many digits; allowed: 18"),
    "range": ("[all]\nh[1:99999999]\n", 'range:2:1: "h[1:99999999]" is a range of 99999999 hosts; allowed: 100000'),
    "range.toml": (
        '[all.hosts]\n"h[1:99999999]" = {}\n',
        '"h[1:99999999]" is a range of 99999999 hosts; allowed: 100000',
    ),
    "line": ("a x=" + "-" * 90_000 + "1\n", "line:1:1: a line that is too long; allowed: 65536 bytes"),
    "stack": ("a x=" + "-" * 30_000 + "1\n", "is nested too deep, or refers to itself"),
    "number.yaml": (variables("x: " + "9" * 5000), "number.yaml:4:8: a number of 5000 characters; allowed: 100"),
    "hex.yaml": (
        variables("gpuprov: {gpu: {count: 0x" + "f" * 20_000 + "}}"),
        "hex.yaml:4:28: a number of 20002 characters",
    ),
    "spaces.yaml": (
        "all:\n" + " " * 60_000 + "a: b: c\n",
        "spaces.yaml:2:60005: not valid YAML: mapping values are not allowed in this context",
    ),
    "number.json": ('{"all": {"vars": {"x": ' + "9" * 5000 + "}}}", "number.json:1:24: a number of 5000 characters"),
    "half.json": ('{"all": {"vars": {"x": "\\ud800"}}}', r"half.json:1:26: \ud800 is not a character"),
    "key.yaml": (
        variables("5: x"),
        'key.yaml:4:5: variables of group "all": the name 5 is not text; allowed: a name (quote it)',
    ),
    "true.yaml": (
        "all:\n  hosts:\n    a: {yes: x}\n",
        'true.yaml:3:5: variables of host "a": the name true is not text; allowed: a name (quote it)',
    ),
    "deep.sh": ("#!/bin/sh\nyes '[' | head -50000\n", f"the inventory script printed what is not read: {DEEP}"),
    "flood.sh": ("#!/bin/sh\nyes\n", "the inventory script printed what is not read: too much output; allowed: 64 MiB"),
}


@pytest.mark.install
def test_each_is_one_error_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lay({name: text for name, (text, _) in ROWS.items()})
    for name, (_, message) in ROWS.items():
        started = time.monotonic()
        with pytest.raises(SpecError) as caught:
            load([name])
        (problem,) = caught.value.problems
        assert str(problem).startswith(name), (name, str(problem))
        assert message in str(problem), (name, str(problem))
        assert caught.value.exit_code == 2
        assert time.monotonic() - started < 20, name


def test_files_of_variables_have_the_same_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    deep = {"inventory.yaml": GOOD, "group_vars/all.yml": "[" * 50_000, "group_vars/training/x.yml": bomb(9)}
    lay(deep | {"host_vars/gpu01.yml": "5: x\n6: y\n"})
    os.mkfifo("host_vars/gpu02")
    with pytest.raises(SpecError) as caught:
        load(["inventory.yaml"])
    assert [str(problem) for problem in caught.value.problems] == [
        f"group_vars/all.yml:1:101: {DEEP}",
        "group_vars/training/x.yml:7:10: the aliases stand for too much; allowed: 1000000 values",
        "host_vars/gpu01.yml:1:1: variables: the name 5 is not text; allowed: a name (quote it)",
        "host_vars/gpu01.yml:2:1: variables: the name 6 is not text; allowed: a name (quote it)",
        "host_vars/gpu02: this is a pipe; allowed: a file",
    ]
    Path("group_vars/loop.yml").symlink_to("loop.yml")
    Path("group_vars/training/up").symlink_to("..")
    for source in ("inventory.yaml", "gpu01,"):
        with pytest.raises(SpecError) as caught:
            load([source])
        assert [str(problem) for problem in caught.value.problems] == [
            "group_vars/loop.yml: this is a loop of symbolic links; remove it",
            "group_vars/training/up: this link leads back to a folder that it lies in; remove it",
        ]


def test_what_another_user_put_where_all_may_write_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "public").mkdir()
    monkeypatch.chdir(tmp_path / "public")
    Path("own").mkdir()
    trap = GOOD + "  vars: {x: \"{{ lookup('ansible.builtin.pipe', 'touch ran') }}\", gpuprov: {kernel: '{{ x }}'}}\n"
    lay({"../inventory.yaml": GOOD, "inventory.yaml": trap, "own/hosts.yaml": "all: {hosts: {gpu01: {}}}\n"})
    lay({"group_vars/all.yml": "gpuprov: {kernel: \"{{ lookup('ansible.builtin.pipe', 'touch ran') }}\"}\n"})
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(files, "ROOT", 12346, raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert find_default_sources() == ("inventory.yaml",)
    for mode in (0o1777, 0o777):
        os.chmod(".", mode)
        with pytest.raises(GpuprovError, match="not yours, in a folder that all may write to") as told:
            find_default_sources()
        assert "./inventory.yaml" in str(told.value)
        for source in ("own/hosts.yaml", "gpu01,", "../inventory.yaml"):
            with pytest.raises(SpecError, match="group_vars: this is not yours"):
                load([source])
    assert not Path("ran").exists()
    monkeypatch.setenv("SUDO_UID", str(Path("group_vars").stat().st_uid))
    assert find_default_sources() == ("inventory.yaml",)
    monkeypatch.delenv("SUDO_UID")
    monkeypatch.setattr(files, "ROOT", Path("group_vars").stat().st_uid)
    assert find_default_sources() == ("inventory.yaml",)


def test_what_is_no_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay({"inv/hosts.yaml": GOOD})
    os.mkfifo("pipe")
    os.mkfifo("inv/pipe")
    Path("inv/loop").symlink_to("loop")
    Path("inv/up").symlink_to(".")
    for source, what in (
        ("pipe", "a pipe"),
        ("/dev/zero", "a device"),
        ("/dev/null", "a device"),
        ("/proc/self/mem", "a file of the running kernel"),
    ):
        with pytest.raises(SpecError) as caught:
            load([source])
        assert [str(problem) for problem in caught.value.problems] == [f"{source}: this is {what}; {NO_FILE}"]
    with pytest.raises(SpecError) as caught:
        load(["inv"])
    assert [str(problem) for problem in caught.value.problems] == [
        f"inv/loop: this is a loop of symbolic links; {NO_FILE}",
        f"inv/pipe: this is a pipe; {NO_FILE}",
        "inv/up: this link leads back to a folder that it lies in; remove it",
    ]


def test_an_inventory_has_a_most_of_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ranges, "MOST", 10)
    lay({"a.yaml": "all: {hosts: {'a[1:9]': , 'b[1:9]': }}", "b.yaml": "all: {hosts: {'a[1:9]': , b1: }}"})
    with pytest.raises(SpecError) as caught:
        load(["a.yaml"])
    assert [str(problem) for problem in caught.value.problems] == ["a.yaml: too many hosts; allowed: 10"]
    assert len(load(["b.yaml"]).hosts) == 10


def test_a_faulty_layout_is_the_problem_of_mig_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuprov.fleet.specs import load_fleet

    monkeypatch.chdir(tmp_path)
    spec = (
        "{gpu: {model: A100-SXM4-80GB, count: 8}, nvidia_driver: {}, mig: {layout: [{gpus: all, instances: [1g.10gb]}]}"
    )
    lay({"inventory.yaml": variables(f"gpuprov: {spec}, kubernetes: {{device_plugin: {{mig_strategy: mixed}}}}}}")})
    with pytest.raises(SpecError) as caught:
        load_fleet(["inventory.yaml"])
    assert [str(problem) for problem in caught.value.problems] == [
        'inventory.yaml:4:113: mig.layout[0].instances[0] is "1g.10gb";'
        ' allowed: a block with profile, placement, count, compute; write {profile: "1g.10gb"}'
    ]
