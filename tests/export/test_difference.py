"""`gpuprov diff`: what differs between two hosts, or a host and a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.export import spec_of
from gpuprov.export.difference import Difference, Side, compare, of_file
from gpuprov.report.difference import as_text
from tests.capabilities.asking import facts, good

SPEC = spec_of(facts(**good()))[0]


def test_a_host_does_not_differ_from_itself_nor_from_its_export(tmp_path: Path) -> None:
    file = tmp_path / "golden.yaml"
    file.write_text(yaml.safe_dump({"all": {"hosts": {"gpu1": {"gpuprov": SPEC}}}}))
    found = compare(Side("gpu1", SPEC), of_file(file))
    assert (found.differences, found.unknown) == ((), {})
    assert as_text(found) == "gpu1 and gpu1 (golden.yaml): nothing differs"


def test_each_field_that_differs_is_told_with_both_values() -> None:
    other = {**SPEC, "nvidia_driver": {**SPEC["nvidia_driver"], "version": "1.2.3", "held": False}}
    other = {**other, "gpu": {**SPEC["gpu"], "count": 7}, "dcgm": {"exporter": {"port": 9401}}}
    persistence = other.pop("persistence")
    found = compare(Side("gpu1", {**SPEC, "dcgm": {}}), Side("gpu2", other))
    assert list(found.differences) == [
        Difference("gpu", "count", SPEC["gpu"]["count"], 7),
        Difference("nvidia_driver", "version", SPEC["nvidia_driver"]["version"], "1.2.3"),
        Difference("nvidia_driver", "held", SPEC["nvidia_driver"].get("held"), False),
        Difference("persistence", "", "there", "not there"),
        *(Difference("persistence", name, value, None) for name, value in persistence.items()),
        Difference("dcgm", "exporter.port", None, 9401),
    ]
    told = as_text(found)
    assert "nvidia_driver\n  version\n" in told
    assert "    gpu2: 1.2.3\n" in told
    assert "dcgm\n  exporter.port\n    gpu1: (default)\n    gpu2: 9401\n" in told
    assert told.endswith("gpu1 and gpu2: 4 capabilities differ")


def test_what_is_not_known_of_one_host_is_no_difference_and_is_named() -> None:
    mine = {**SPEC}
    mine.pop("nvidia_driver")
    found = compare(Side("gpu1", mine, {"nvidia_driver": "packages cannot be read"}), Side("gpu2", SPEC))
    assert found.differences == ()
    assert as_text(found) == (
        "nvidia_driver: not compared: gpu1: packages cannot be read\ngpu1 and gpu2: nothing differs, 1 could not be "
        "compared"
    )


def test_a_file_of_several_hosts_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump({"all": {"hosts": {name: {"gpuprov": SPEC} for name in ("a", "b")}}}))
    with pytest.raises(GpuprovError, match="specs of 2 hosts"):
        of_file(file)


def test_two_files_need_no_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, version in (("good", "580.95.05"), ("bad", "570.124.06")):
        spec = {**SPEC, "nvidia_driver": {**SPEC["nvidia_driver"], "version": version}}
        Path(f"{name}.yaml").write_text(yaml.safe_dump({"all": {"hosts": {name: {"gpuprov": spec}}}}))
    outputs = {name: {"text": text if isinstance(text, str) else text.text} for name, text in good().items()}
    Path("good.capture.json").write_text(json.dumps({"gpuprov_capture": 2, "host": "good", "outputs": outputs}))
    done = CliRunner().invoke(cli, ["diff", "good.yaml", "bad.yaml", "--json"], standalone_mode=False)
    assert done.return_value == 1, done.output
    (found,) = json.loads(done.stdout)["differences"]
    assert (found["field"], found["left"], found["right"]) == ("version", "580.95.05", "570.124.06")
    done = CliRunner().invoke(cli, ["diff", "good.capture.json", "good.capture.json"], standalone_mode=False)
    assert "good (good.capture.json) and good (good.capture.json): nothing differs" in done.output
    wrong = CliRunner().invoke(cli, ["diff", "good.yaml", "bad.yml"])
    assert wrong.exit_code == 2
    assert "HOST comes first, and good.yaml is an inventory" in wrong.output


@pytest.mark.install
def test_the_command_reads_hosts_and_ends_with_1_where_they_differ(tmp_path: Path) -> None:
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"a": local, "b": local, "c": local}}}))
    same = CliRunner().invoke(cli, ["diff", "a", "b", str(inventory)], standalone_mode=False)
    last = same.stdout.splitlines()[-1]
    assert last.startswith("a and b: nothing differs"), same.output
    assert same.return_value == ("could not be compared" in last)
    (tmp_path / "golden.yaml").write_text(yaml.safe_dump({"all": {"hosts": {"z": {"gpuprov": SPEC}}}}))
    other = CliRunner().invoke(
        cli, ["diff", "a", str(tmp_path / "golden.yaml"), str(inventory), "--json"], standalone_mode=False
    )
    assert other.return_value == 1, other.output
    assert {"capability": "nvidia_driver", "field": "", "left": "not there", "right": "there"} in json.loads(
        other.stdout
    )["differences"]
    asked = CliRunner().invoke(cli, ["diff", "a", "b", "-i", str(inventory), "-K"], standalone_mode=False)
    assert isinstance(asked.exception, GpuprovError)
    assert "--ask-become-pass: no host needs it" in asked.exception.message
    many = CliRunner().invoke(cli, ["diff", "a", "[bc]", str(inventory)], standalone_mode=False)
    assert isinstance(many.exception, GpuprovError)
    assert '"[bc]" means 2 hosts' in many.exception.message
