"""What gpuprov bundle --pull writes, and what a host makes of it."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.host_code import process
from gpuprov.host_code.pull import bundle, config, reboot, results, signed
from gpuprov.host_code.pull import run as running
from gpuprov.host_code.pull.refused import Refused, Unfetched
from gpuprov.host_code.pull.state import State
from gpuprov.host_code.pull.wheels import Python, choose
from gpuprov.jobs import frozen, stored
from gpuprov.jobs.model import HostResult, Job
from gpuprov.pull import bundles, cloud_init, program
from tests.here import PLUGINS
from tests.pull.site import Site
from tests.rows import run_each

pytestmark = pytest.mark.install

HERE = Python("/usr/bin/python3", (3, 11), "x86_64", (2, 36))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def read(site: Site) -> tuple[bundle.Manifest, Job]:
    """The host's own bundle, after its signature was judged; the job as gpuprov fleet work reads it."""
    found = bundle.read(signed.verify_archive(site.bundle.read_bytes(), str(site.out / "allowed_signers")))
    path = site.folder / "job.json"
    path.write_bytes(found.job)
    return found.manifest, stored.load_job(path)


def test_a_bundle_holds_the_hosts_own_job_and_no_more(site: Site) -> None:
    site.make(spec={"persistence": {}, "reboot": "if-needed"}, mode="apply")
    manifest, job = read(site)
    assert [host.name for host in job.hosts] == ["gpu1"]
    assert job.hosts[0].connection == {"ansible_connection": "local"}
    assert list(job.specs.values()) == [{"persistence": {}}], "the run itself never reboots its own machine"
    assert manifest["reboot"] is True
    assert "gpu2" not in site.archive().decode(errors="replace")
    assert stored.text(job).count("c3d4") == 0


def test_results_are_of_the_fleet_that_freeze_writes(site: Site) -> None:
    site.make()
    inventory = str(site.folder / "inventory.yaml")
    ran = CliRunner().invoke(
        cli, ["fleet", "freeze", inventory, "--out", str(site.folder / "fleet.json")], standalone_mode=False
    )
    assert ran.return_value == 0, ran.output
    assert read(site)[0]["fleet"] == stored.load_fleet(site.folder / "fleet.json").digest
    assert frozen.DOMAINS == ("site", "rack")


def test_a_report_bundle_permits_no_reboot(site: Site) -> None:
    site.make(spec={"persistence": {}, "reboot": "if-needed"})
    manifest, _ = read(site)
    assert (manifest["mode"], manifest["reboot"]) == ("report", False)


def test_a_host_without_an_identity_gets_no_bundle(site: Site) -> None:
    inventory = site.folder / "i.yaml"
    inventory.write_text(json.dumps({"all": {"hosts": {"gpu1": {"gpuprov": {"persistence": {}}}}}}), encoding="utf-8")
    words = [
        "bundle",
        str(inventory),
        "--pull",
        "--key",
        str(site.key),
        "--wheels",
        str(site.wheels),
        "--out",
        str(site.out),
    ]
    ran = CliRunner().invoke(cli, [*words, "--source", "/srv"], standalone_mode=False)
    assert isinstance(ran.exception, GpuprovError)
    assert "the host has no identity" in ran.exception.message
    assert not site.out.exists()
    ran = CliRunner().invoke(cli, [word for word in words if word != "--pull"] + ["--source", "/srv"])
    assert ran.exit_code == 2
    assert "--pull" in ran.output


def test_wheels_of_another_version_are_refused(site: Site) -> None:
    (mine,) = site.wheels.glob("gpuprov-*")
    mine.rename(site.wheels / "gpuprov-9.9-py3-none-any.whl")
    with pytest.raises(GpuprovError, match=r"has gpuprov 9\.9; this is"):
        site.make()


def test_user_data_makes_a_host_a_puller(site: Site) -> None:
    """The program that stands in it reads its configuration, refuses a Python that is too old, and pulls."""
    site.make(serial=3, mode="apply")
    text = (site.out / "cloud-init" / "gpu1.yaml").read_text()
    small = (site.out / "cloud-init" / "gpu1.yaml.gz").read_bytes()
    assert text.startswith("#cloud-config\n")
    assert gzip.decompress(small).decode() == text
    assert len(small) <= cloud_init.LARGEST
    files = {one["path"]: one for one in yaml.safe_load(text)["write_files"]}
    assert files[config.PLACE]["permissions"] == "0600"
    pyz = site.folder / "pull.pyz"
    pyz.write_bytes(gzip.decompress(base64.b64decode(files[cloud_init.PROGRAM]["content"])))
    given = json.loads(files[config.PLACE]["content"])
    (site.folder / "results").mkdir()
    place = site.folder / "pull.json"
    place.write_text(json.dumps({**given, "state": str(site.state), "signers": str(site.out / "allowed_signers")}))
    ran = subprocess.run([sys.executable, "-I", pyz, place], capture_output=True, text=True, check=False)
    told = json.loads((site.folder / "results" / "gpu1.json").read_text())
    assert ran.returncode == 2, "wheels of a test do nothing"
    assert told["message"] == "pull: gpuprov fleet work ended with 0 and wrote no result", ran.stderr
    assert '"serial": 3' in (site.state / "state.json").read_text()
    place.write_text('{"name": "gpu1", "source": "http://mirror", "x": "y"}')
    ran = subprocess.run([sys.executable, "-I", pyz, place], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "'x' is unknown" in ran.stderr


def test_no_file_of_the_program_is_missing() -> None:
    folder = PLUGINS.parent / "gpuprov" / "host_code" / "pull"
    assert {path.name for path in folder.glob("*.py")} >= set(program.LEFT_OUT)
    assert "from .." not in "".join(
        path.read_text() for path in folder.glob("*.py") if path.name not in program.LEFT_OUT
    )


def test_the_oldest_python_is_that_of_the_project() -> None:
    told = tomllib.loads((PLUGINS.parent / "pyproject.toml").read_text())["project"]["requires-python"]
    assert told == ">={}.{}".format(*bundles.OLDEST_PYTHON)


@run_each(
    ("name", "fits"),
    [
        ("a-1-py3-none-any.whl", True),
        ("a-1-py2.py3-none-any.whl", True),
        ("a-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", True),
        ("a-1-cp39-abi3-manylinux_2_34_x86_64.whl", True),
        ("a-1-cp312-abi3-manylinux_2_34_x86_64.whl", False),
        ("a-1-cp312-cp312-manylinux_2_17_x86_64.whl", False),
        ("a-1-cp311-cp311-manylinux_2_38_x86_64.whl", False),
        ("a-1-cp311-cp311-manylinux_2_17_aarch64.whl", False),
        ("a-1-cp311-cp311-musllinux_1_2_x86_64.whl", False),
    ],
)
def test_which_wheels_suit_a_python(name: str, fits: bool) -> None:
    """https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/"""
    one: bundle.Wheel = {"name": name, "sha256": "0" * 64, "size": 1}
    assert choose([one], HERE) == (([one], []) if fits else ([], ["a"]))


def test_the_wheel_that_is_made_for_this_python_wins() -> None:
    names = ["a-1-cp311-cp311-linux_x86_64.whl", "a-1-py3-none-any.whl", "a-1-cp38-abi3-linux_x86_64.whl"]
    chosen, _ = choose([{"name": name, "sha256": "0" * 64, "size": 1} for name in names], HERE)
    assert [wheel["name"] for wheel in chosen] == names[:1]


def test_a_refusal_is_a_result(site: Site) -> None:
    told = results.build_refusal(site.config(), State(4, "j", "f"), "pull-1", results.format_now(), Refused("no", "do"))
    import msgspec

    assert msgspec.json.decode(json.dumps(told), type=HostResult).fleet == "f"


def test_what_cannot_be_fetched_or_sent_is_another_exit_code(site: Site) -> None:
    site.make()
    site.bundle.unlink()
    assert site.pull()[0] == Unfetched.code == 4
    with pytest.raises(Unfetched, match="cannot be put into"):
        results.upload(site.config(results=str(site.folder / "nowhere")), b"{}")


def test_configuration_of_others_is_not_read(site: Site) -> None:
    place = site.folder / "pull.json"
    for text, said in (
        ('{"name": "gpu1", "source": "http://mirror"}', "https://"),
        ('{"name": "../x", "source": "/srv"}', "not a name of a host"),
        ('{"name": "gpu1", "source": "/srv", "results": "ftp://x"}', "rsync:DESTINATION"),
        ('{"name": "gpu1", "source": "/srv", "mode": "all"}', "report, apply"),
        ('{"name": "gpu1", "source": "/srv", "state": "here"}', "an absolute path"),
        ("[]", "not a JSON object"),
    ):
        place.write_text(text)
        with pytest.raises(Refused, match=said):
            config.read(str(place))
    place.chmod(0o602)
    with pytest.raises(Refused, match="others may write it"):
        config.read(str(place))


def test_a_host_reboots_only_where_nothing_is_in_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The lock is the one that an apply from a controller takes, and is given back."""
    from gpuprov.host_code import clients, lock

    for name in ("BASE", "LOCK", "KEPT"):
        monkeypatch.setattr(lock, name, str(tmp_path / getattr(lock, name).lstrip("/")))
    asked: reboot.Request = {"run": "pull-1", "services": ["nvidia-persistenced.service"], "reasons": []}
    done: list[str] = []

    def ask() -> tuple[int, str, str]:
        done.append("reboot")
        return 0, "", ""

    monkeypatch.setattr(clients, "list_holders", lambda _services, guests: ["python (pid 7, ada)"])
    assert reboot.request_reboot(asked, ask) == "1 process(es) hold a GPU: python (pid 7, ada)"
    monkeypatch.setattr(clients, "list_holders", lambda _services, guests: [])
    other = process.describe("friday", "")
    assert lock.take(other)["taken"]
    assert reboot.request_reboot(asked, ask) == "another run holds the host: friday"
    assert not done
    lock.release_lock(other)
    assert reboot.request_reboot(asked, ask) == ""
    assert done == ["reboot"]
    assert lock.read_owner_file() is None


def test_gpuprov_gets_nothing_of_who_started_the_puller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "PYTHONSTARTUP", "/tmp/x")
    assert set(running.build_environment("/e", "/s")) == {"PATH", "HOME", "LANG", "PYTHONPATH", "XDG_CACHE_HOME"}
