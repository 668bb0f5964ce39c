"""What gpuprov needs of Ansible's private parts, and that the answers agree with `ansible-inventory`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprov.inventory import load
from gpuprov.spec.problem import Origin, SpecError
from tests.inventory.files import GOOD, lay

ROOT = Path(__file__).parents[2]


def test_origin_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible.parsing.dataloader import DataLoader

    from gpuprov.inventory.origin import find_origin, is_template, is_vaulted, strip_tags

    monkeypatch.chdir(tmp_path)
    lay({"a.yaml": 'text: b\nnumber: 3\nreal: 1.5\nflag: true\nlist: [x]\ntemplate: "{{ a }}"\n'})
    document = DataLoader().load_from_file(str(tmp_path / "a.yaml"), trusted_as_template=True)
    keys = list(document)
    assert [find_origin(key) for key in keys] == [Origin("a.yaml", line, 1) for line in range(1, 7)]
    assert find_origin(document["text"]) == Origin("a.yaml", 1, 7)
    assert find_origin(document["number"]) == Origin("a.yaml", 2, 9)
    assert find_origin(document[keys[3]]) is None
    assert find_origin(document["list"]) == Origin("a.yaml", 5, 7)
    assert [type(strip_tags(document[key])) for key in ("text", "number", "real")] == [str, int, float]
    assert is_template(document["template"])
    assert not is_template(str.__str__(document["template"]))
    assert not is_vaulted(document["text"])


@pytest.mark.install
def test_agrees_with_ansible_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay(
        {
            "inventory.yaml": GOOD + "        gpu03: {ansible_user: admin}\n",
            "group_vars/training.yml": "ansible_user: root\nansible_port: 2200\n",
            "host_vars/gpu02.yml": "ansible_port: 2222\n",
        }
    )
    tool = Path(sys.executable).parent / "ansible-inventory"
    done = subprocess.run([tool, "-i", "inventory.yaml", "--list"], capture_output=True, text=True, check=True)
    wanted = json.loads(done.stdout)["_meta"]["hostvars"]
    for host in load(["inventory.yaml"]).hosts:
        mine = {name: value for name, value in wanted[host.name].items() if name.startswith("ansible_")}
        assert host.connection == mine
        assert host.values == wanted[host.name]["gpuprov"]


@pytest.mark.install
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("[defaults\n", "File contains no section headers"),
        ("[defaults]\nforks=many\n", "Invalid value provided for 'integer': 'many'"),
    ],
)
def test_a_broken_configuration(config: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text(config)
    (tmp_path / "inventory.yaml").write_text(GOOD)
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom gpuprov.inventory import load\nload(['inventory.yaml'])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    wanted = f"{SpecError.__module__}.SpecError: ansible.cfg: Ansible cannot use its configuration: {reason}"
    assert run.stderr.splitlines()[-1] == wanted
