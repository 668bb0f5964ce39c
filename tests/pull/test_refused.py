"""What a host refuses before anything is unpacked or run, and that it reports it."""

from __future__ import annotations

import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprov.host_code.pull.refused import Refused
from gpuprov.host_code.pull.signed import BEGIN
from gpuprov.host_code.pull.wheels import unpack
from gpuprov.jobs import fold
from tests.pull.site import HOSTS, Site, new_key, tar, wheel
from tests.rows import run_each

pytestmark = pytest.mark.install

DAY = 86_400


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.make(mode="apply")
    return made


def tampered(site: Site) -> None:
    data = site.bundle.read_bytes()
    at = data.index(b'"mode":"apply"')
    site.bundle.write_bytes(data[:at] + b'"mode":"apple"' + data[at + 14 :])


def wrong_key(site: Site) -> None:
    site.sign(site.archive(), new_key(site.folder, "other"))


def another_namespace(site: Site) -> None:
    archive, key = site.archive(), site.key
    command = ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", "file"]
    signature = subprocess.run(command, input=archive, capture_output=True, check=True).stdout
    assert signature.startswith(BEGIN)
    site.bundle.write_bytes(signature + archive)


def another_hosts(site: Site) -> None:
    site.bundle.write_bytes((site.out / "gpu2.bundle").read_bytes())


def renamed(site: Site) -> None:
    """Of a machine that took the name of another: the signed word is the other's."""
    site.sign(site.packed(identity={"declared": HOSTS["gpu2"]["pull_declared"]}))


def another_machine(site: Site) -> None:
    site.sign(site.packed(identity={"declared": "a1b2", "machine_id": "0" * 32}))


def truncated(site: Site) -> None:
    site.bundle.write_bytes(site.bundle.read_bytes()[:-2000])


def unsigned(site: Site) -> None:
    site.bundle.write_bytes(site.archive())


def member(name: str, kind: bytes, size: int = 0) -> Callable[[Site], None]:
    def plant(site: Site) -> None:
        one = tarfile.TarInfo(name)
        one.type, one.linkname = kind, "/etc/passwd"
        archive = tar({}, one)
        if size:  # a header that promises more than there is
            one.size = size
            archive = one.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024
        site.sign(archive)

    return plant


CASES: dict[str, tuple[Callable[[Site], None], str]] = {
    "tampered": (tampered, "signature of the bundle is invalid"),
    "wrong key": (wrong_key, "signature of the bundle is invalid"),
    "another namespace": (another_namespace, "signature of the bundle is invalid"),
    "truncated": (truncated, "signature of the bundle is invalid"),
    "unsigned": (unsigned, "does not begin with a signature"),
    "another host's": (another_hosts, "is of 'gpu2', and this is gpu1"),
    "a name taken": (renamed, "of a host with declared c3d4, and this one has a1b2"),
    "another machine": (another_machine, "of a host with machine_id 000"),
    "a newer format": (lambda site: site.sign(site.packed(gpuprov_bundle=2)), "has format 2, kind pull; allowed: 1"),
    "another kind": (lambda site: site.sign(site.packed(kind="offline")), "kind offline"),
    "no manifest": (lambda site: site.sign(tar({"job.json": b"{}"})), "lacks manifest.json"),
    "no archive": (lambda site: site.sign(b"x" * 2048), "is not an archive"),
    "cut off, then signed": (lambda site: site.sign(site.archive()[:700]), "the bundle"),
    "../": (member("../../etc/cron.d/x", tarfile.REGTYPE), "holds '../../etc/cron.d/x'"),
    "absolute": (member("/etc/cron.d/x", tarfile.REGTYPE), "holds '/etc/cron.d/x'"),
    "symlink": (member("job.json", tarfile.SYMTYPE), "not a plain file"),
    "hard link": (member("job.json", tarfile.LNKTYPE), "not a plain file"),
    "device": (member("job.json", tarfile.BLKTYPE), "not a plain file"),
    "10 GB": (member("job.json", tarfile.REGTYPE, 10 << 30), "says that it has 10737418240 bytes"),
    "twice": (lambda site: site.sign(tar({"job.json": b"{}"}, tarfile.TarInfo("job.json"))), "each once"),
    "a wheel that leaves": (
        lambda site: site.sign(site.packed(wheels=[{"name": "../x.whl", "sha256": "0" * 64, "size": 1}])),
        "not allowed",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_before_anything_runs(site: Site, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    plant, said = CASES[case]
    plant(site)
    code, result = site.pull()
    assert (code, result["state"], result["verdict"]) == (2, "blocked", "differs")
    assert said in result["message"], result["message"]
    assert said in capsys.readouterr().err
    assert site.untouched()
    assert not (site.state / "state.json").exists(), "a refused bundle moves no serial"
    folded = fold.fold([site.folder / "results"])
    assert (folded.tally.exit_code, dict(folded.states), folded.unread) == (3, {"blocked": 1}, 0)


def test_expired_and_from_the_future(site: Site) -> None:
    site.make(now=time.time() - 31 * DAY)
    assert "expired at" in site.pull()[1]["message"]
    site.make(now=time.time() + 2 * DAY)
    assert "this clock is before that" in site.pull()[1]["message"]
    assert site.untouched()


def test_an_old_serial_is_refused_and_the_same_is_not(site: Site) -> None:
    site.make(serial=7)
    site.pull()
    old = site.bundle.read_bytes()
    assert '"serial": 7' in (site.state / "state.json").read_text()
    site.make(serial=8)
    site.pull()
    assert site.pull()[1]["message"].endswith("wrote no result"), (
        "stub wheels do nothing: the bundle itself was accepted"
    )
    site.bundle.write_bytes(old)
    assert "has serial 7, and 8 was accepted before" in site.pull()[1]["message"]
    (site.state / "state.json").write_text("{")
    assert "state.json is not JSON" in site.pull()[1]["message"], "what is damaged does not begin anew"


def test_files_that_others_may_write_say_nothing(site: Site) -> None:
    (site.out / "allowed_signers").chmod(0o666)
    assert "others may write it" in site.pull()[1]["message"]
    assert site.untouched()


def test_a_bundle_is_not_read_beyond_its_limit(site: Site) -> None:
    with site.bundle.open("ab") as file:
        file.truncate(10 << 30)
    assert "more than 16777216 bytes" in site.pull()[1]["message"]


WHEELS: dict[str, tuple[dict[str, bytes], dict[str, int], str]] = {
    "../": ({"../x.py": b""}, {}, "leaves its folder"),
    "absolute": ({"/etc/x.py": b""}, {}, "leaves its folder"),
    "inner ..": ({"a/../../x.py": b""}, {}, "leaves its folder"),
    "backslash": ({"..\\x.py": b""}, {}, "leaves its folder"),
    "symlink": ({"x.py": b"/etc/passwd"}, {"x.py": 0o120777}, "a link or a device"),
    "device": ({"x.py": b""}, {"x.py": 0o060600}, "a link or a device"),
    "zeros": ({"x.py": bytes(64 << 20)}, {}, "there is room for"),
    "too many": ({f"{number}.py": b"" for number in range(200)}, {}, "more than 100 files"),
}


@run_each("case", WHEELS)
def test_wheels_are_unpacked_below_their_folder_or_not_at_all(tmp_path: Path, case: str) -> None:
    files, modes, said = WHEELS[case]
    data = wheel(tmp_path / "a-1-py3-none-any.whl", files, modes).read_bytes()
    (tmp_path / "in").mkdir()
    with pytest.raises(Refused, match=said):
        unpack(data, str(tmp_path / "in"), "a-1-py3-none-any.whl", 1 << 20, 100)
    assert not list(tmp_path.rglob("x.py"))


def test_a_wheel_that_lies_about_its_size_is_not_unpacked_further(tmp_path: Path) -> None:
    data = wheel(tmp_path / "a-1-py3-none-any.whl", {"x.py": bytes(32 << 20)}).read_bytes()
    small = data.replace(struct.pack("<I", 32 << 20), struct.pack("<I", 10))
    assert small != data
    with pytest.raises(Refused):
        unpack(small, str(tmp_path), "a-1-py3-none-any.whl", 1 << 20, 100)
    assert sum(path.stat().st_size for path in tmp_path.glob("x.py")) <= 1 << 20


def test_another_wheel_than_the_manifests_is_refused(site: Site) -> None:
    (name,) = (path for path in (site.out / "wheels").iterdir() if path.name.startswith("msgspec"))
    wheel(name, {"msgspec/__init__.py": "evil"})
    assert "msgspec" in site.pull()[1]["message"]
    assert site.untouched()


def test_a_full_disk_leaves_nothing_half_done(site: Site) -> None:
    """A real failure of write(2), in a process that may write no file larger than that."""
    big = site.wheels / "big-1-py3-none-any.whl"
    wheel(big, {"big.py": bytes(200_000)})
    site.make(mode="apply")
    script = (
        "import resource, signal, sys; from pathlib import Path; from tests.pull.site import Site\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "site = Site.__new__(Site); site.folder = Path(sys.argv[1]); site.out = site.folder / 'www'\n"
        "site.state = site.folder / 'state'; print(site.pull()[1]['message'])"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(site.folder)], capture_output=True, text=True, check=False)
    assert "cannot be unpacked" in ran.stdout, ran.stdout + ran.stderr
    assert site.untouched()
    assert site.pull()[1]["message"].endswith("wrote no result"), "with room it goes on"


def test_a_python_that_is_too_old_is_refused_clearly(site: Site) -> None:
    whole = site.archive()
    site.sign(site.packed(python=[4, 0]))
    message = site.pull()[1]["message"]
    assert "this host has no Python that can do it: python3 is 3." in message
    assert site.untouched()
    site.sign(whole)
    site.sign(site.packed(wheels=[{"name": "msgspec-1-cp27-cp27m-any.whl", "sha256": "0" * 64, "size": 1}]))
    assert "no wheel of msgspec fits" in site.pull()[1]["message"]
    assert site.untouched()
