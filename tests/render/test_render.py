"""The rendered project: byte-stable, without secrets, playable by ansible-playbook alone, never over somebody's
files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import files
from gpuprov.fleet.specs import judge
from gpuprov.render import digests, render, role_variables, write
from gpuprov.spec.model import HostSpec, RawHost
from tests.rows import run_each

pytestmark = pytest.mark.install

VALUES: dict[str, object] = {
    "nouveau": {},
    "nvidia_driver": {"version": "535", "module_parameters": {"NVreg_EnableGpuFirmware": 0}},
    "persistence": {"mode": "legacy"},
}
BIN = Path(sys.executable).parent


def pairs(values: dict[str, object] = VALUES, **connection: object) -> tuple[tuple[RawHost, HostSpec], ...]:
    return judge([RawHost(name="gpu01", values=values, connection=connection)]).pairs


def data(text: str) -> Any:
    """What a rendered file of variables says; it is data as a whole, or this fails."""
    whole = yaml.compose(text)
    assert whole is not None
    assert whole.tag == "!unsafe"
    return yaml.safe_load(text.replace("--- !unsafe\n", "", 1))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_specs_give_the_same_bytes(tmp_path: Path) -> None:
    write(render(pairs()), tmp_path / "one")
    write(render(pairs()), tmp_path / "two")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_rendering_again_writes_nothing_and_removes_what_is_gone(tmp_path: Path) -> None:
    two = judge([RawHost(name=name, values=VALUES) for name in ("gpu01", "gpu02")]).pairs
    write(render(two), tmp_path)
    before = (tmp_path / "host_vars" / "gpu01.yml").stat().st_mtime_ns
    filters = tmp_path / "filter_plugins" / "gpuprov_resolve.py"
    filters.parent.mkdir()
    filters.write_text("# of an earlier gpuprov, and roles took filters from it\n")
    write(render(pairs()), tmp_path)
    assert not filters.exists()
    assert not (tmp_path / "host_vars" / "gpu02.yml").exists()
    assert (tmp_path / "host_vars" / "gpu01.yml").stat().st_mtime_ns == before


def test_variables_are_the_fields_under_their_roles_name() -> None:
    spec = pairs()[0][1]
    assert role_variables("persistence", spec.capabilities["persistence"]) == {"persistence_mode": "legacy"}
    rendered = data(render(pairs()).files["host_vars/gpu01.yml"])
    assert rendered["gpuprov_capabilities"] == ["kernel", "nouveau", "nvidia_driver", "persistence"]
    assert rendered["kernel_module_options"]["nvidia-current"] == {"NVreg_EnableGpuFirmware": 0}
    assert rendered["kernel_blacklist"] == ["nouveau", "nova_core"]


def test_acts_go_through_the_capabilities_that_some_host_has() -> None:
    """In apply order, whatever the order of the hosts; a task that no host needs costs a moment on each of them."""
    asked: dict[str, dict[str, object]] = {"gpu01": {"persistence": {}}, "gpu02": {"dcgm": {}, "nouveau": {}}}
    files = render(judge([RawHost(name=name, values=values) for name, values in asked.items()]).pairs).files
    steps = yaml.safe_load(files["acts/configure.yml"])
    names = [step["ansible.builtin.include_role"]["name"] for step in steps]
    wanted = [data(files[f"host_vars/{host}.yml"])["gpuprov_capabilities"] for host in asked]
    assert names == [one.name for one in CAPABILITIES if any(one.name in host for host in wanted)]
    assert {"kernel", "nouveau", "persistence", "dcgm"} <= set(names) < set(BY_NAME)


def test_the_digest_follows_the_variables() -> None:
    one, two = pairs()[0][1], pairs({**VALUES, "nvidia_driver": {"version": "550"}})[0][1]
    assert digests(two)["persistence"] == digests(one)["persistence"]
    assert digests(two)["nvidia_driver"] != digests(one)["nvidia_driver"]


def test_secrets_are_left_out_and_named() -> None:
    secret = pairs(ansible_user="admin", ansible_password="hunter2", ansible_become_password="hunter3")
    project = render(secret)
    assert project.left_out == ("gpu01: ansible_password", "gpu01: ansible_become_password")
    assert not any("hunter" in text for text in project.files.values())
    assert "hunter2" in render(secret, secrets=True).files["inventory.yml"]


def test_somebodys_folder_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(GpuprovError, match="is not empty and was not rendered by gpuprov"):
        write(render(pairs()), tmp_path)
    assert tree(tmp_path) == {"thesis.tex": b"years of work"}


@run_each("link", ["host_vars", "roles", "roles/host", "roles/host/tasks", "filter_plugins"])
def test_what_a_link_leads_to_is_not_written_over(tmp_path: Path, link: str) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    write(render(pairs()), out)
    victim.mkdir()
    (victim / "thesis.tex").write_text("years of work")
    if (out / link).exists():
        shutil.rmtree(out / link)
    (out / link).symlink_to(victim)
    with pytest.raises(GpuprovError, match=f"out cannot be rendered into: {link} in it is a link"):
        write(render(pairs()), out)
    assert tree(victim) == {"thesis.tex": b"years of work"}


def test_another_users_folder_is_not_rendered_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(files, "ROOT", 12346)
    monkeypatch.delenv("SUDO_UID", raising=False)
    with pytest.raises(GpuprovError, match="out cannot be rendered into: it is another user's"):
        write(render(pairs()), tmp_path / "out")
    assert not tree(tmp_path)


def test_a_file_that_is_not_ours_is_replaced(tmp_path: Path) -> None:
    write(render(pairs()), tmp_path / "out")
    good = tree(tmp_path / "out")
    (tmp_path / "copy").write_bytes(good["site.yml"])
    (tmp_path / "out/site.yml").unlink()
    (tmp_path / "out/site.yml").symlink_to(tmp_path / "copy")
    (tmp_path / "out/ansible.cfg").write_bytes(b"\xff")
    write(render(pairs()), tmp_path / "out")
    assert tree(tmp_path / "out") == good
    assert not (tmp_path / "out/site.yml").is_symlink()


def test_a_file_in_the_way_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(GpuprovError, match=r"out is a file\nfix: name a folder with --out"):
        write(render(pairs()), tmp_path / "out")


def test_ansible_playbook_takes_the_project_from_any_folder(tmp_path: Path) -> None:
    write(render(pairs(ansible_connection="local")), tmp_path / "out")
    command: list[str | Path] = [
        BIN / "ansible-playbook",
        "-i",
        tmp_path / "out" / "inventory.yml",
        tmp_path / "out" / "site.yml",
        "--syntax-check",
    ]
    done = subprocess.run(
        command,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert [line for line in warnings if "Could not match supplied host pattern" not in line] == []


def test_the_readme_says_what_to_run_and_what_is_left_out() -> None:
    text = render(pairs(ansible_password="hunter2")).files["README.md"]
    assert "ansible-playbook site.yml" in text
    assert "`gpu01: ansible_password`" in text
    assert "hunter2" not in text
    assert "## Secrets" not in render(pairs()).files["README.md"]
    assert "README.md" not in render(pairs(), secrets=True).files
