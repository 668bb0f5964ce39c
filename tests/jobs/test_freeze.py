"""What `gpuprov fleet freeze` writes of an inventory, and what `gpuprov fleet slice` makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.specs import judge, load_fleet
from gpuprov.jobs import cut, frozen, stored
from gpuprov.jobs.model import Fleet
from tests import public_keys
from tests.rows import run_each

SECRETS = ("hunter2-hunter2", "correct-horse-battery", "s3cr3t-passphrase")
INVENTORY = f"""\
all:
  vars:
    gpuprov: {{nvidia_driver: {{version: "580"}}, nouveau: {{}}}}
    ansible_user: ops
    ansible_become: true
    ansible_become_password: {SECRETS[0]}
    ansible_private_key_passphrase: {SECRETS[2]}
    host_max_clock_skew: 600
    row: 7
  children:
    racks:
      children:
        r1: {{hosts: {{"gpu[001:007]": {{site: a}}}}}}
        r2: {{hosts: {{"gpu[008:010]": {{site: b, gpuprov: {{persistence: {{}}}}}}}}}}
    canary: {{hosts: {{gpu001: {{ansible_password: {SECRETS[1]}}}, gpu008: {{}}}}}}
    away: {{hosts: {{cpu01: {{gpuprov: {{persistence: {{}}}}}}}}}}
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words, standalone_mode=False)


def inventory(folder: Path, text: str = INVENTORY) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "inventory.yaml").write_text(text)
    return folder / "inventory.yaml"


def frozen_fleet(folder: Path, text: str = INVENTORY) -> Fleet:
    fleet = load_fleet([str(inventory(folder, text))], also=("site", "rack", "row"))
    return frozen.freeze(fleet, "2026-11-23T18:00:00Z")


def test_the_same_inventory_gives_the_same_bytes_but_the_date(tmp_path: Path) -> None:
    source = inventory(tmp_path)
    texts = []
    for name in ("one", "two"):
        assert run("fleet", "freeze", str(source), "--out", str(tmp_path / name)).return_value == 0
        texts.append((tmp_path / name).read_text())
    stamps = [json.loads(text)["made_at"] for text in texts]
    assert texts[0].replace(stamps[0], "") == texts[1].replace(stamps[1], "")
    fleet = stored.load_fleet(tmp_path / "one")
    assert len(fleet.hosts) == 11
    assert len(fleet.specs) == 2, "each spec once"
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600


def test_no_secret_is_in_any_file_and_each_is_named(tmp_path: Path) -> None:
    source = inventory(tmp_path)
    told = run("fleet", "freeze", str(source), "--out", str(tmp_path / "fleet.json"))
    run("fleet", "slice", str(tmp_path / "fleet.json"), "--out", str(tmp_path / "jobs"))
    files = [tmp_path / "fleet.json", *(tmp_path / "jobs").iterdir()]
    assert len(files) == 2
    for file in files:
        assert not [secret for secret in SECRETS if secret in file.read_text()]
    hosts = {host.name: host.secrets for host in stored.load_fleet(files[0]).hosts}
    assert hosts["gpu002"] == ("ansible_become_password", "ansible_private_key_passphrase")
    assert hosts["gpu001"] == ("ansible_become_password", "ansible_password", "ansible_private_key_passphrase")
    assert "ansible_become_password" in told.stderr


@run_each(
    "more",
    [
        "ansible_ssh_common_args: \"-o ProxyCommand='sshpass -p {{ ansible_become_password }} ssh jump'\"",
        'gpuprov: {vgpu_guest: {licensing: server, server_address: "{{ ansible_become_password }}.example"}}',
        'rack: "{{ ansible_become_password }}"',
    ],
)
def test_a_secret_in_what_is_not_called_one_is_refused(tmp_path: Path, more: str) -> None:
    text = (
        f"all:\n  vars:\n    ansible_become_password: {SECRETS[0]}\n    gpuprov: {{nouveau: {{}}}}\n  hosts:\n   "
        " gpu1:\n"
    )
    with pytest.raises(GpuprovError, match="holds the value of ansible_become_password") as caught:
        frozen_fleet(tmp_path, f"{text}      {more}\n")
    assert SECRETS[0] not in str(caught.value)


@run_each(
    ("first", "whose"),
    [("ansible_become_password: 9876543210", ""), ("ansible_password: hunter2-of-gpu1", " of gpu1")],
)
def test_a_secret_that_is_a_number_or_another_hosts_is_refused_too(tmp_path: Path, first: str, whose: str) -> None:
    name = first.partition(":")[0]
    said = f'ansible_ssh_common_args: "-o SendEnv={{{{ hostvars.gpu1.{name} }}}}"'
    hosts = f"    gpu1:\n      {first}\n" + (f"    gpu2:\n      {said}\n" if whose else f"      {said}\n")
    with pytest.raises(GpuprovError, match=f"ansible_ssh_common_args holds the value of {name}{whose}, and no secret"):
        frozen_fleet(tmp_path, f"all:\n  vars:\n    gpuprov: {{nouveau: {{}}}}\n  hosts:\n{hosts}")


def test_the_specs_are_judged_as_those_of_the_inventory(tmp_path: Path) -> None:
    whole = load_fleet([str(inventory(tmp_path))])
    fleet = frozen.freeze(load_fleet([str(tmp_path / "inventory.yaml")], also=("site",)))
    again = judge(frozen.raw_hosts(fleet.hosts, fleet.specs), whole=False)
    plain = [(spec.name, spec.groups, spec.capabilities, spec.gpu, spec.reboot, spec.site) for _, spec in whole.pairs]
    assert [(s.name, s.groups, s.capabilities, s.gpu, s.reboot, s.site) for _, s in again.pairs] == plain
    assert again.pairs[0][1].site == {"host_max_clock_skew": 600}


def test_a_files_place_does_not_depend_on_where_the_job_is_worked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "key.asc").write_text(public_keys.GOOD)
    block = "{url: 'https://r.example/', key_file: key.asc}"
    text = (
        f"all: {{vars: {{gpuprov: {{nvidia_driver: {{source: mirror, repository: {block}}}}}}}, hosts: {{gpu1: }}}}\n"
    )
    fleet = frozen_fleet(tmp_path / "site", text)
    (values,) = fleet.specs.values()
    assert values["nvidia_driver"]["repository"]["key_file"] == str(tmp_path / "site" / "key.asc")
    assert list(fleet.files) == [str(tmp_path / "site" / "key.asc")]
    monkeypatch.chdir(tmp_path)
    assert judge(frozen.raw_hosts(fleet.hosts, fleet.specs)).pairs


def test_a_variable_that_reaches_nothing_is_refused_in_a_job(tmp_path: Path) -> None:
    fleet = frozen_fleet(tmp_path)
    for name in ("nvidia_driver_version", "ansible_become_password"):
        wrong = replace(fleet.hosts[0], connection={name: "{{ lookup('pipe', 'id') }}"})
        with pytest.raises(GpuprovError, match=f"{name} is not a variable"):
            frozen.raw_hosts([wrong], fleet.specs)


def test_slices_have_no_hosts_of_two_domains(tmp_path: Path) -> None:
    fleet = frozen_fleet(tmp_path)
    jobs = cut.cut(fleet, 4, "racks")
    assert [(job.domain, len(job.hosts)) for job in jobs] == [("r1", 4), ("r1", 3), ("r2", 3), ("", 1)]
    assert [(job.number, job.of) for job in jobs] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {host.name for job in jobs for host in job.hosts} == {host.name for host in fleet.hosts}
    assert [job.domain for job in cut.cut(fleet, 50, "site")] == ["a", "b", ""]
    assert [job.domain for job in cut.cut(fleet, 50, "row")] == ["7"]
    assert len(jobs[2].specs) == 1, "no spec that none of its hosts has"
    assert len(cut.cut(fleet, 50)) == 1


def test_what_cannot_be_sliced_by_is_told(tmp_path: Path) -> None:
    fleet = frozen_fleet(tmp_path)
    with pytest.raises(GpuprovError) as caught:
        cut.cut(fleet, 50, "shelf")
    assert "racks" in caught.value.fix
    assert "site" in caught.value.fix
    assert "gpuprov fleet freeze --domain" in caught.value.fix
    with pytest.raises(GpuprovError, match="policy's domain: no group") as caught:
        cut.domains(fleet, "shelf", "the policy's domain")
    assert "freeze" not in caught.value.fix, "rollout start freezes what its policy names"
    with pytest.raises(GpuprovError, match="gpu001 is in two groups of it: canary and racks"):
        cut.cut(fleet, 50, "all")


def test_jobs_of_an_earlier_slicing_are_not_left_beside(tmp_path: Path) -> None:
    fleet = frozen_fleet(tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "notes.txt").write_text("mine")
    cut.save(cut.cut(fleet, 1), tmp_path / "jobs")
    assert len(list((tmp_path / "jobs").glob("job-*"))) == 11
    paths = cut.save(cut.cut(fleet, 6), tmp_path / "jobs")
    assert sorted(path.name for path in (tmp_path / "jobs").iterdir()) == [
        "job-0001.json",
        "job-0002.json",
        "notes.txt",
    ]
    assert stored.load_job(paths[1]).fleet == fleet.digest
    texts = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in cut.save(cut.cut(fleet, 6), tmp_path / "jobs")] == texts
