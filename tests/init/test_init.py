"""`gpuprov init` as a person runs it: on a terminal, without one, over a file, from hosts."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.capabilities import CAPABILITIES
from gpuprov.core.errors import GpuprovError
from gpuprov.export import Exported
from gpuprov.init import Draft, Group, hosts, judged, questions
from gpuprov.init.written import written
from tests.export.test_export import FULL, exported
from tests.rows import run_each

pytestmark = pytest.mark.install
SAMPLES = Path(__file__).parent / "samples"


def init(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuprov", "init", *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300
    )


def test_without_a_terminal_one_error_names_the_options(tmp_path: Path) -> None:
    done = init(cwd=tmp_path)
    assert done.returncode == 2
    assert all(name in done.stderr for name in ("--from-hosts", "--from-slurm", "--from-kubernetes"))
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_is_never_replaced_unasked(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("mine\n")
    slurm = ("--from-slurm", str(SAMPLES / "charmed.slurm.conf"))
    done = init(*slurm, cwd=tmp_path)
    assert (done.returncode, file.read_text()) == (2, "mine\n")
    assert "--force" in done.stderr
    done = init(*slurm, "--force", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["inventory.yaml: 1 host valid", "next: gpuprov plan inventory.yaml"]
    assert yaml.safe_load(file.read_text())["all"]["children"]["a100_pcie_80gb"]["hosts"] == {"juju-e33208-1": {}}


def answered(answers: list[str], cwd: Path, *arguments: str) -> str:
    """What the terminal showed; each answer is typed when a question waits for it."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "gpuprov", "init", *arguments],
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    seen, waiting, end = "", list(answers), time.monotonic() + 300
    asked = 0
    while time.monotonic() < end:
        try:
            data = os.read(ours, 4096)
            if not data:
                break
            seen += data.decode()
        except BlockingIOError:
            if seen.endswith(": ") and len(seen) > asked and waiting:
                asked = len(seen)
                os.write(ours, f"{waiting.pop(0)}\n".encode())
            time.sleep(0.02)
        except OSError:
            break
    assert child.wait(10) == 0, seen
    os.close(ours)
    return seen


def test_questions_with_answers_from_the_catalogue(tmp_path: Path) -> None:
    seen = answered(["gpu[01:08]", "admin", "H1000", "H100-SXM5-80GB", "", "470", "580", "", "docker", "yes"], tmp_path)
    assert "GPUs in each host [8]" in seen
    assert '"H1000" is not in the catalogue' in seen
    assert "Error: H100-SXM5-80GB (Hopper) is not known to branch 470" in seen
    assert "joined by NVSwitches (HGX, DGX)? [yes]" in seen
    assert "8 hosts valid" in seen
    read = yaml.safe_load((tmp_path / "inventory.yaml").read_text())["all"]
    assert read["vars"]["gpuprov"] == {
        "nouveau": {},
        "nvidia_driver": {"version": "580"},
        "persistence": {},
        "container_toolkit": {"runtimes": ["docker"]},
        "reboot": "if-needed",
    }
    assert read["children"]["h100_sxm5_80gb"] == {
        "vars": {"gpuprov": {"gpu": {"model": "H100-SXM5-80GB", "count": 8}, "fabric_manager": {}}},
        "hosts": {"gpu[01:08]": {"ansible_user": "admin", "ansible_become": True}},
    }


SCRIPTED = (
    "--hosts",
    "gpu[01:08]",
    "--user",
    "admin",
    "--gpu",
    "H100-SXM5-80GB",
    "--driver",
    "580",
    "--engines",
    "docker",
    "--reboot",
    "yes",
)


def test_options_answer_the_questions_without_a_terminal(tmp_path: Path) -> None:
    asked, scripted = tmp_path / "asked", tmp_path / "scripted"
    asked.mkdir()
    scripted.mkdir()
    answered(["gpu[01:08]", "admin", "H100-SXM5-80GB", "", "580", "", "docker", "yes"], asked)
    done = init(*SCRIPTED, "--json", cwd=scripted)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (len(told["hosts"]), told["next"], told["file"]) == (8, "plan", "inventory.yaml")
    one, other = (yaml.safe_load((folder / "inventory.yaml").read_text()) for folder in (asked, scripted))
    assert one == other


def test_an_option_answers_its_question_and_the_others_are_asked(tmp_path: Path) -> None:
    seen = answered(["gpu1", "", "", "", "", ""], tmp_path, "--gpu", "L40S")
    assert "GPU model" not in seen
    assert "GPUs in each host" in seen


@run_each(
    ("arguments", "told"),
    [
        (("--hosts", "gpu1", "--gpu", "H1000"), '--gpu: "H1000" is not in the catalogue'),
        (
            ("--hosts", "gpu1", "--gpu", "H100-SXM5-80GB", "--driver", "470"),
            "--driver: H100-SXM5-80GB (Hopper) is not known",
        ),
        (("--hosts", "a b"), '--hosts: "a b" is not a name of a host'),
        (("--hosts", "hgx[01-08]"), "write hgx[01:08]"),
        (("--hosts", "hgx[01-04,06]"), "write hgx[01:04],hgx06"),
        (("--hosts", "hgx{01..08}"), "write hgx[01:08]"),
        (("--hosts", "gpu1", "--from-hosts", "gpu2"), "--hosts answers a question, and --from-hosts asks none"),
        (("--hosts", "gpu1", "--reboot", "maybe"), "'maybe' is not one of"),
        (("--hosts", "gpu1", "-K"), "reaches no host: leave out --ask-become-pass"),
        (("--gpu", "L40S"), "no terminal to ask on"),
    ],
)
def test_an_answer_that_is_none_names_its_option(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    done = init(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert not list(tmp_path.iterdir())


def test_hosts_are_grouped_by_what_export_reads_of_them() -> None:
    spec, _ = exported(**FULL)
    other = {**spec, "gpu": {"model": "L40S", "count": 2}}
    entries: dict[str, dict[str, Any]] = {
        "a": {"ansible_host": "192.0.2.1", "gpuprov": spec},
        "b": {"gpuprov": spec},
        "c": {"gpuprov": other},
    }
    read = Exported({"all": {"hosts": entries}}, ("a: not exported: x",), ("d: ssh: refused\nfix: y",))
    draft = hosts.draft(read, ["a", "b", "c", "d"])
    assert {group.name: list(group.hosts) for group in draft.groups} == {"h100_sxm5_80gb": ["a", "b"], "l40s": ["c"]}
    assert draft.common["nvidia_driver"] == spec["nvidia_driver"]
    assert draft.groups[0].spec == {"gpu": spec["gpu"]}
    assert draft.notes == ["a: not exported: x", "not read: d: ssh: refused"]
    assert draft.unreached
    text, fleet = judged(draft)
    assert draft.verb == "verify"
    del other["fabric_manager"]  # check refuses it for an L40S, and for no other host
    for raw, _ in fleet.pairs:
        assert raw.values == {**entries[raw.name]["gpuprov"], "reboot": "never"}, text
    assert any("fabric_manager has nothing to manage" in note for note in draft.groups[1].notes)


def test_this_machine_is_read_as_export_reads_it(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text("all: {hosts: {here: {ansible_connection: local}}}\n")
    done = init("--from-hosts", "here", "-i", "hosts.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    read = yaml.safe_load((tmp_path / "inventory.yaml").read_text())["all"]
    (group,) = read["children"].values()
    assert group["hosts"] == {"here": {"ansible_connection": "local"}}


def test_each_block_has_its_meaning_above_it_and_notes_stay_comments() -> None:
    spec: dict[str, Any] = {one.name: {} for one in CAPABILITIES if one.name != "host"}
    group = Group(name="all_of_it", spec=spec, hosts={"a": {}}, notes=["one\nall: {hosts: {evil: {}}}"])
    text = written(Draft(source="a test", groups=[group], notes=["x\r\nall: {}", *(f"n{n}" for n in range(500))]))
    assert yaml.safe_load(text)["all"]["children"]["all_of_it"]["hosts"] == {"a": {}}
    assert "evil" not in yaml.safe_load(text)["all"].get("hosts", {})
    lines = text.splitlines()
    for name in spec:
        assert lines[lines.index(f"          {name}: {{}}") - 1].strip().startswith("#"), name
    assert len(lines) < 300


@run_each(
    ("given", "model", "count"),
    [("ecs.gn7-c13g1.13xlarge", "A100-SXM4-40GB", 4), ("p5.48xlarge", "H100-SXM5-80GB", 8), ("L40S", "L40S", 1)],
)
def test_an_instance_type_brings_its_count(given: str, model: str, count: int) -> None:
    (group,) = questions.draft({"hosts": "gpu01", "gpu": given}).groups
    assert group.spec["gpu"] == {"model": model, "count": count}


@run_each(
    ("words", "gpu"),
    [
        (("--gpu", "GeForce RTX 3090:4"), {"model": "RTX3090", "count": 4}),
        (("--gpu", "10de:2330"), {"model": "H100-SXM5-80GB", "count": 8}),
        (("--gpu", "8xL40S"), {"model": "L40S", "count": 8}),
        (("--gpu", "p4d.24xlarge"), {"model": "A100-SXM4-40GB", "count": 8}),
        (("--gpu", "L40S", "--count", "2"), {"model": "L40S", "count": 2}),
        (("--gpu", "L40S:2", "--count", "2"), "--gpu has a count (2), and --count is 2"),
        (("--gpu", "L40S:0"), "--gpu: a number from 1 to 64"),
        (("--gpu", "L40T:2"), '--gpu: "L40T" is not in the catalogue'),
    ],
)
def test_gpus_of_an_option(words: tuple[str, ...], gpu: dict[str, Any] | str) -> None:
    given = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    if isinstance(gpu, str):
        with pytest.raises(GpuprovError) as caught:
            questions.draft({"hosts": "gpu1", **given})
        assert str(caught.value.message) == gpu
    else:
        assert questions.draft({"hosts": "gpu1", **given}).groups[0].spec["gpu"] == gpu
