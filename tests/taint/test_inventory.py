"""Every text of an untrusted inventory is a canary in turn: refused with its place, or data all the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect as shape

from gpuprov.capabilities import CAPABILITIES, HOUSE
from gpuprov.fleet.specs import judge, load_fleet
from gpuprov.inventory import load
from gpuprov.render import render
from gpuprov.render import write as write_project
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import SpecError
from tests.spec.test_one_line import laid, texts
from tests.taint.canary import DELIMITERS, OTHERS, Nest
from tests.taint.test_commands import run
from tests.taint.test_render import strings, untrusted
from tests.taint.transport import answers, serve

CONNECTION = (
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_become_exe",
    "ansible_become_password",
    "ansible_shell_type",
)


@pytest.fixture
def nest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nest:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Nest(tmp_path / "nest")


def specs(nest: Nest) -> Iterator[dict[str, Any]]:
    """Specs with one canary each: every text of every block, by every kind."""
    for name, fragment in (("", HOUSE.fragment), *((one.name, one.fragment) for one in CAPABILITIES)):
        for path, role in texts(shape.type_info(fragment)):
            for canary in nest.all():
                value = laid(path, canary) if role == "value" else laid(path, {canary: "1"})
                yield {name: value} if name else value
    for canary in nest.all():
        yield {canary: {}}
        yield {"nouveau": canary}


def script(file: Path, hosts: dict[str, dict[str, Any]], groups: list[str]) -> Path:
    """An inventory script whose texts are not templates to Ansible."""
    answer: dict[str, Any] = {"_meta": {"hostvars": untrusted(hosts)}, "all": {"hosts": list(hosts)}}
    answer |= {group: {"hosts": list(hosts)[:1]} for group in groups}
    file.with_suffix(".json").write_text(json.dumps(answer))
    file.write_text(f"#!/bin/sh\ncat '{file.with_suffix('.json')}'\n")
    file.chmod(0o755)
    return file


def variables(nest: Nest) -> dict[str, dict[str, Any]]:
    """A host for each spec, and one for each canary in each variable of the connection."""
    hosts: dict[str, dict[str, Any]] = {f"spec{n}": {"gpuprov": spec} for n, spec in enumerate(specs(nest))}
    given = [{name: canary, "gpuprov": {"nouveau": {}}} for name in CONNECTION for canary in nest.all()]
    return hosts | {f"way{n}": one for n, one in enumerate(given)}


def sound(hosts: tuple[RawHost, ...]) -> list[str]:
    """Those that check takes; the others it refuses in words."""
    names = []
    for raw in hosts:
        with suppress(SpecError):
            names += [pair[0].name for pair in judge([raw]).pairs]
    return names


@pytest.mark.install
def test_no_text_of_an_untrusted_inventory_is_more_than_data(
    nest: Nest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import is_trusted_as_template

    given = variables(nest)
    read = load([str(script(tmp_path / "all.sh", given, nest.all()))]).hosts
    assert {raw.name: raw.values for raw in read} == {name: one["gpuprov"] for name, one in given.items()}
    taken = sound(read)
    assert len(taken) > 50
    assert len(given) - len(taken) > 500
    file = script(tmp_path / "sound.sh", {name: given[name] for name in taken}, ["gpus"])
    assert run(monkeypatch, "check", file, "--verbose") == 0
    assert run(monkeypatch, "check", tmp_path / "all.sh") == 2
    assert run(monkeypatch, "check", tmp_path / "all.sh", "--json") == 2
    assert run(monkeypatch, "render", file, "--out", "project") == 0
    found = [
        text
        for variables in sorted((tmp_path / "project/host_vars").iterdir())
        for text in strings(DataLoader().load_from_file(str(variables), trusted_as_template=True))
    ]
    assert sum("canary-" in text for text in found) >= len(taken) - len(CONNECTION) * len((*DELIMITERS, *OTHERS))
    assert not any(map(is_trusted_as_template, found))
    serve(monkeypatch, dict.fromkeys(taken, answers()))
    assert run(monkeypatch, "plan", "--quick", "--verbose", file) in (0, 1)
    assert run(monkeypatch, "export", file, "--out", "e.yaml") == 0
    assert {host.name: host.connection for host in load(["e.yaml"]).hosts} == {
        name: {key: value for key, value in given[name].items() if key not in ("gpuprov", "ansible_become_password")}
        for name in taken
    }
    told = capsys.readouterr()
    assert "bug in" not in told.out + told.err
    assert nest.flown() == []
    print(f"{len(given)} texts: {len(taken)} taken as data, {len(given) - len(taken)} refused; none evaluated")


@pytest.mark.install
def test_what_a_plugin_composes_of_a_tag_is_data(nest: Nest, tmp_path: Path) -> None:
    """Ansible leaves it inert, and so does gpuprov: from the cloud's tag to the rendered variable."""
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import is_trusted_as_template

    (tmp_path / "inventory").mkdir()
    tag = nest.templates()[0]
    script(tmp_path / "inventory" / "1.sh", {"gpu01": {"tag": tag}}, ["gpus"])
    (tmp_path / "inventory" / "1.json").rename(tmp_path / "1.json")
    (tmp_path / "inventory" / "1.sh").write_text(f"#!/bin/sh\ncat '{tmp_path}/1.json'\n")
    (tmp_path / "inventory" / "2.constructed.yml").write_text(
        "plugin: ansible.builtin.constructed\nstrict: true\ncompose:\n"
        "  gpuprov: \"{'kernel': {'sysctl': {'vm.swappiness': tag}}}\"\n"
        "  ansible_ssh_common_args: \"'-o Tag=' ~ tag\"\n"
    )
    ((raw, spec),) = load_fleet([str(tmp_path / "inventory")]).pairs
    assert raw.values == {"kernel": {"sysctl": {"vm.swappiness": tag}}}
    write_project(render([(raw, spec)]), tmp_path / "project")
    for name in ("host_vars/gpu01.yml", "inventory.yml"):
        read = DataLoader().load_from_file(str(tmp_path / "project" / name), trusted_as_template=True)
        assert any(tag in text for text in strings(read))
        assert not any(map(is_trusted_as_template, strings(read)))
    assert nest.flown() == []


def test_a_template_that_ansible_trusts_is_still_resolved(tmp_path: Path) -> None:
    """Of the operator's own inventory: also where only a header says that it is one, and only once."""
    (tmp_path / "inventory.yaml").write_text(
        "all:\n  hosts: {gpu01: {}}\n  vars:\n    ratio: 6\n    said: !unsafe '{{ 1 + 1 }}'\n"
        "    gpuprov:\n      kernel:\n        sysctl:\n"
        '          a.b: "{{ ratio * 10 }}"\n          a.c: "{{ said }}"\n'
        "          a.d: \"#jinja2:variable_start_string:'[%', variable_end_string:'%]'\\n[% ratio %]\"\n"
    )
    (host,) = load([str(tmp_path / "inventory.yaml")], cache=False).hosts
    assert host.values == {"kernel": {"sysctl": {"a.b": 60, "a.c": "{{ 1 + 1 }}", "a.d": 6}}}
