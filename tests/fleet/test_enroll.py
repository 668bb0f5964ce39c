"""gpuprov enroll: who trusts the site's certificate, requests to shim, and the sheet for the consoles.

The mokutil of this machine is used, or that of $GPUPROV_MOKUTIL, with a folder in place of the firmware's variables
(libefivar's EFIVARFS_PATH); without one, a stand-in that keeps a list, which proves nothing of mokutil itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.cli.reference import document_schema
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.collect.command import remote_command
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.collect.script import TIMED_OUT
from gpuprov.facts.collect.settings import Settings
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.kernel.signing import MOK_STATE, VARIABLES, MokState
from gpuprov.fleet import enroll
from gpuprov.fleet.enroll.password import HASH, LETTERS, hash_password, make_password, make_salt
from gpuprov.fleet.enroll.script import compose_request
from gpuprov.rules import certificates
from gpuprov.spec.model import RawHost
from gpuprov.spec.signing import Signing
from tests import key_pairs
from tests.capabilities.asking import facts, good
from tests.commands import run_main
from tests.facts.probes import captured, run_script
from tests.here import program
from tests.rows import run_each

REAL = os.environ.get("GPUPROV_MOKUTIL") or shutil.which("mokutil")
STAND_IN = """case "$1" in
--list-new) cat ROOT/new 2>/dev/null ;;
--revoke-import) rm -f ROOT/new ;;
--import) [ ! -e ROOT/new ] || { echo "SKIP: $2 is already in the enrollment request"; exit 0; }
  printf '[key 1]\\nSHA1 Fingerprint: %s\\n' "$(sha1sum <"$2" | cut -c 1-40)" >>ROOT/new ;;
--timeout) echo "$2" >ROOT/timeout ;;
esac"""
VECTOR = (
    "Hello world!",
    "saltstring",
    "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
)
"""As openssl passwd -6 prints it, and libcrypt."""
READY = "looked|1\nefi|1\nvariables|rw\ntool|1\n"


@pytest.fixture
def mokutil(tmp_path: Path) -> str:
    """The body of a program that is mokutil, its variables below this test's folder."""
    variables = tmp_path / "vars"
    variables.mkdir()
    (variables / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\x06\x00\x00\x00\x01")
    if not REAL:
        return STAND_IN.replace("ROOT", str(variables))
    libraries = os.environ.get("LD_LIBRARY_PATH", "")
    return f'LD_LIBRARY_PATH={libraries} EFIVARFS_PATH={variables}/ LIBEFIVAR_OPS=efivarfs exec {REAL} "$@"'


def driver(folder: Path, mode: Literal["prepared", "by-hand"] = "prepared") -> NvidiaDriver:
    """The block with the key pair in this folder, which is made once."""
    if not (folder / "site.crt").exists():
        key_pairs.site(folder)
    files = {"key_file": str(folder / "site.key"), "certificate_file": str(folder / "site.crt")}
    return NvidiaDriver(signing=Signing(**files, enroll=mode))


def fingerprint(folder: Path) -> str:
    return certificates.of_file(driver(folder).signing.certificate_file)["fingerprint"]


def host_facts(**changed: str | Output) -> Facts:
    names = ("secure_boot", "enrolled_certificates", "mok_state", "container", "os_release")
    texts = {**good(), "secure_boot": captured("secure_boot", "on"), "mok_state": READY, **changed}
    return facts(**{name: texts[name] for name in names})


def test_the_hash_is_that_of_crypt(mokutil: str) -> None:
    word, salt, known = VECTOR
    assert hash_password(word, salt) == known
    if REAL:
        printed = subprocess.run(["/bin/sh", "-c", mokutil, "sh", "--generate-hash=correct horse"], capture_output=True,
                                 text=True, check=True).stdout.strip()  # fmt: skip
        assert hash_password("correct horse", printed.split("$")[2]) == printed
    password = make_password()
    assert len(password) == 14
    assert set(password) <= set(LETTERS)
    assert HASH.fullmatch(hash_password(password, make_salt()))


@run_each(
    ("changed", "again", "state", "requested", "words"),
    [
        ({"secure_boot": ""}, False, "not needed", False, "Secure Boot is off"),
        ({"container": "podman\n"}, False, "not needed", False, "podman container"),
        ({"enrolled_certificates": "{mine}\n"}, False, "enrolled", False, ""),
        ({"enrolled_certificates": "{short}\n"}, False, "enrolled", False, ""),
        ({}, False, "not enrolled", True, "no enrolled certificate has"),
        ({"mok_state": READY + "new|{mine}\n"}, False, "waiting", False, "MokManager asks at the console"),
        ({"mok_state": READY + "new|{short}\n"}, False, "waiting", False, "MokManager asks"),
        ({"mok_state": READY + "new|{mine}\nnew|aa:bb\n"}, False, "waiting", False,
         "certificates, too: aabb; gpuprov enroll"),
        ({"mok_state": READY + "new|{mine}\n"}, True, "not enrolled", True, "waits for the console"),
        ({"mok_state": READY + "new|aa:bb\n"}, False, "refused", False,
         "another certificate waits for the console: aabb"),
        ({"mok_state": READY + "new|aa:bb\n"}, True, "not enrolled", True, "another certificate waits"),
        ({"mok_state": READY.replace("rw", "ro")}, False, "refused", False, "efivars is mounted read-only"),
        ({"mok_state": "looked|1\nefi|1\ntool|1\n"}, False, "refused", False, "efivars is not mounted"),
        ({"secure_boot": "", "mok_state": "looked|1\nefi|1\n"}, False, "failed", False, "efivars is not mounted"),
        ({"secure_boot": "", "mok_state": "looked|1\n"}, False, "not needed", False, "no EFI"),
        ({"mok_state": "looked|1\nefi|1\nvariables|rw\n"}, True, "refused", False, "mokutil, which shows"),
        ({"mok_state": ""}, False, "failed", False, "mok_state"),
    ],
)  # fmt: skip
def test_who_needs_a_request(
    tmp_path: Path, changed: dict[str, str], again: bool, state: str, requested: bool, words: str
) -> None:
    mine = fingerprint(tmp_path)
    given = {name: text.replace("{mine}", mine).replace("{short}", mine[:10]) for name, text in changed.items()}
    host = enroll.judge_host("gpu1", driver(tmp_path), host_facts(**given), again=again)
    assert (host.state, host.requested) == (state, requested), host
    assert words in "; ".join((host.message, *host.notes))
    by_hand = enroll.judge_host("gpu1", driver(tmp_path, "by-hand"), host_facts(**given), again=again)
    assert not by_hand.requested
    assert state not in ("not enrolled", "refused") or by_hand.state in ("refused", "waiting")


def ask_for(folder: Path, body: str, *, again: bool = False, wait: int | None = None) -> Output:
    known = certificates.of_file(driver(folder).signing.certificate_file)
    script = compose_request(known["der"], hash_password("secret", "salt"), again=again, wait=wait)
    return run_script(
        script.replace("/run/gpuprov", f"{folder}/gpuprov").replace(VARIABLES, f"{folder}/vars"),
        folder,
        {"mokutil": body},
    )


def test_a_request_is_made_and_read_back(tmp_path: Path, mokutil: str) -> None:
    """And made once more it is replaced; nothing of it stays on the host's disk."""
    host = enroll.Host(host="gpu1", state="not enrolled", requested=True,
                       certificate=driver(tmp_path).signing.certificate_file)  # fmt: skip
    output = ask_for(tmp_path, mokutil, wait=-1)
    assert enroll.judge_answer(host, output).state == "waiting", output
    assert MOK_STATE.parse(output).pending == {fingerprint(tmp_path)}
    twice = enroll.judge_answer(host, ask_for(tmp_path, mokutil))
    assert (twice.state, twice.requested) == ("waiting", False), "the password of the first request still counts"
    replaced = enroll.judge_answer(host, ask_for(tmp_path, mokutil, again=True))
    assert (replaced.state, replaced.requested) == ("waiting", True)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("gpuprov-enroll")]
    for salt, ours in (("salt", True), ("other", False)):
        auth = next(tmp_path.glob("vars/MokAuth-*"), tmp_path / "vars/MokAuth-x")
        auth.write_bytes(b"\x07\0\0\0\x05" + salt.encode() + b"\0\xff" * 9)
        late = ask_for(tmp_path, f'[ "$1" != --list-new ] || echo "SHA1 Fingerprint: {fingerprint(tmp_path)}"')
        between = enroll.judge_answer(host, late)
        assert (between.requested, between.message.endswith("came between")) == (ours, not ours)
    if REAL:
        assert list(tmp_path.glob("vars/MokAuth-*"))
        assert list(tmp_path.glob("vars/MokTimeout-*"))


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        ({"user": "kim", "host": "ops1", "since": "2026-11-30T03:00:00Z"},
         "locked by kim on ops1 since 2026-11-30T03:00:00Z"),
        (None, "locked by nobody knows whom"),
    ],
)  # fmt: skip
def test_nothing_is_requested_where_another_run_works(
    tmp_path: Path, mokutil: str, owner: dict[str, str] | None, words: str
) -> None:
    lock = tmp_path / "gpuprov" / "lock"
    lock.mkdir(parents=True)
    if owner:
        (lock / "owner.json").write_text(json.dumps(owner))
    host = enroll.Host(host="gpu1", state="not enrolled", requested=True,
                       certificate=driver(tmp_path).signing.certificate_file)  # fmt: skip
    judged = enroll.judge_answer(host, ask_for(tmp_path, mokutil))
    assert (judged.state, judged.outcome, judged.at_console) == ("locked", "locked", False), judged
    assert words in judged.message
    assert "that run ends" in judged.fix
    shutil.rmtree(lock)
    assert enroll.judge_answer(host, ask_for(tmp_path, mokutil)).state == "waiting"


@run_each(
    ("body", "words"),
    [
        ("echo 'Failed to enroll new keys' >&2; exit 1", "Failed to enroll new keys"),
        ("echo 'SKIP: x is already enrolled'", "is already enrolled"),
        ("echo 'EFI variables are not supported on this system' >&2; exit 1", "EFI variables are not supported"),
        ("exit 1", "exit status"),
        ('[ "$1" = --list-new ] || exit 0', "exit status 0"),
    ],
)
def test_a_request_that_mokutil_does_not_make_is_no_success(tmp_path: Path, body: str, words: str) -> None:
    host = enroll.Host(host="gpu1", state="not enrolled", requested=True,
                       certificate=driver(tmp_path).signing.certificate_file)  # fmt: skip
    judged = enroll.judge_answer(host, ask_for(tmp_path, body))
    assert (judged.state, bool(judged.fix)) == ("failed", True)
    assert words in judged.message
    assert not judged.at_console


@run_each(
    ("body", "cut", "state", "words"),
    [
        (STAND_IN.replace("--list-new)", "--list-new) echo 'Failed to read' >&2; exit 255;"), None, "unknown",
         "Failed to read"),
        (STAND_IN, Output("begun|1\n", TIMED_OUT), "unknown", "mokutil did not end within 60 s"),
        (STAND_IN.replace("--import)", "--import) kill -9 $$;").replace("cat ROOT/new", "exit 1"), None, "unknown",
         "nobody knows"),
        (STAND_IN, Output("", TIMED_OUT), "unknown", "mokutil did not end"),
        (STAND_IN, Output("", 1, "mktemp: no space"), "failed", "mokutil made no request: mktemp"),
        (STAND_IN.replace("--timeout)", "--timeout) exit 1;"), None, "waiting", "mokutil --timeout failed"),
        (STAND_IN, None, "waiting", "MokManager waits 300 seconds for a key"),
        (STAND_IN.replace("--list-new)", "--list-new) echo 'SHA1 Fingerprint: aa:bb';"), None, "waiting",
         "certificates, too: aabb"),
    ],
)  # fmt: skip
def test_what_nobody_knows_and_what_was_not_set_is_told(
    tmp_path: Path, body: str, cut: Output | None, state: str, words: str
) -> None:
    host = enroll.Host(host="gpu1", state="not enrolled", requested=True,
                       certificate=driver(tmp_path).signing.certificate_file)  # fmt: skip
    output = ask_for(tmp_path, body.replace("ROOT", str(tmp_path)), wait=300)
    judged = enroll.judge_answer(host, cut or output, 300)
    assert (judged.state, judged.at_console) == (state, state != "failed"), (judged, output)
    assert words in "; ".join((judged.message, *judged.notes))


@run_each(
    ("mounts", "tool", "expected"),
    [
        ("efivarfs {v} efivarfs rw,nosuid 0 0", True, MokState(efi=True, variables="rw", tool=True)),
        ("efivarfs {v} efivarfs ro,nosuid 0 0", True, MokState(efi=True, variables="ro", tool=True)),
        ("proc /proc proc rw 0 0", False, MokState(efi=True)),
    ],
)
def test_the_probe_reads_what_a_request_needs(tmp_path: Path, mounts: str, tool: bool, expected: MokState) -> None:
    (tmp_path / "sys/firmware/efi").mkdir(parents=True)
    (tmp_path / "mounts").write_text(mounts.replace("{v}", f"{tmp_path}/sys/firmware/efi/efivars") + "\n")
    script = MOK_STATE.script.replace("/proc/mounts", f"{tmp_path}/mounts").replace(
        "/sys/firmware", f"{tmp_path}/sys/firmware"
    )
    if tool:
        program(tmp_path, "bin/mokutil" if (tmp_path / "bin").is_dir() else "mokutil", "exit 0\n")
    path = f"{tmp_path}:/usr/bin:/bin" if tool else "/usr/bin:/bin"
    assert MOK_STATE.parse(run_script(script, tmp_path, {}, path=path)) == expected


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, mokutil: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command over hosts whose facts are made here, and whose shell is this machine's with that mokutil."""
    driver(tmp_path)
    text = """all:
  vars:
    gpuprov:
      nouveau: {}
      gpu: {model: H100-SXM5-80GB, count: 8}
      nvidia_driver: {version: "580", signing: {key_file: site.key, certificate_file: site.crt, enroll: prepared}}
  hosts: {"gpu[1:4]": {}}
"""
    (tmp_path / "inventory.yaml").write_text(text)
    answers: dict[str, Any] = {}

    def gather(hosts: Any, note: Callable[[str, Any], None], **_: Any) -> None:
        for raw, _probes in hosts:
            note(raw.name, answers.get(raw.name) or host_facts())

    def job(raw: Any, script: str, _limit: float, done: Callable[[Any], None]) -> Callable[[], None]:
        def start() -> None:
            folder = tmp_path / "hosts" / raw.name
            (folder / "bin").mkdir(parents=True, exist_ok=True)
            program(folder / "bin", "mokutil", mokutil.replace(f"{tmp_path}/vars", f"{folder}/vars") + "\n")
            shutil.copytree(tmp_path / "vars", folder / "vars", dirs_exist_ok=True)
            environment = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
            moved = script.replace("/run/gpuprov-enroll", f"{folder}/enroll")
            ended = subprocess.run(["/bin/sh"], input=moved.encode(), capture_output=True, check=False, env=environment)
            assert b"secret" not in ended.stdout
            done(ended.stdout + ended.stderr)

        return start

    monkeypatch.setattr(enroll, "gather_each", gather)
    monkeypatch.setattr(enroll, "job", job)
    monkeypatch.setattr(enroll, "run_all", lambda jobs, _: [start() for start in jobs])

    def call(*words: str, **given: Any) -> tuple[int, str, str]:
        answers.clear()
        answers.update(given)
        code = run_main(monkeypatch, "enroll", str(tmp_path / "inventory.yaml"), *words)
        return code, *capsys.readouterr()

    return call


def test_the_sheet_has_what_a_person_needs_and_the_passwords_are_nowhere_else(tmp_path: Path, run: Run) -> None:
    sheet = tmp_path / "console.txt"
    enrolled = host_facts(enrolled_certificates=f"{fingerprint(tmp_path)}\n")
    waiting = host_facts(mok_state=f"{READY}new|{fingerprint(tmp_path)}\n")
    code, out, err = run("--sheet", str(sheet), gpu1=enrolled, gpu2=waiting)
    assert code == 1, out + err
    text = sheet.read_text()
    assert stat.S_IMODE(sheet.stat().st_mode) == 0o600
    passwords = re.findall(r"^    password: ([a-z]{14})$", text, re.MULTILINE)
    assert len(set(passwords)) == 2
    assert not any(password in out + err for password in passwords)
    assert "[ ] gpu2\n    password: on the sheet of the run that made the request" in text
    assert "gpu1" not in text.replace("gpuprov", "")
    digits = fingerprint(tmp_path)
    assert " ".join(digits[at : at + 2] for at in range(0, 20, 2)) in text
    assert "CN=test modules" in text
    words = "Press any key to perform MOK management|Enroll MOK|View key 0|Continue|Enroll the key(s)?|Password:|Reboot"
    places = [text.index(f'"{word}') for word in words.split("|")]
    assert places == sorted(places)
    assert "waiting       gpu[2:4] (3)" in out
    assert "a reboot with a person at the console is needed: gpu[2:4]" in err
    for name, password in re.findall(r"\[ \] (gpu\d)\n    password: ([a-z]{14})\n", text):
        stored = list((tmp_path / "hosts" / name / "vars").glob("MokAuth-*"))
        assert bool(stored) == bool(REAL)
        for path in stored:
            assert _matches(path.read_bytes()[4:], password)
    code, out, err = run("--sheet", str(sheet))
    assert (code, "exists, and hosts may still wait for its passwords" in err) == (2, True)
    assert sheet.read_text() == text


def _matches(stored: bytes, password: str) -> bool:
    """Whether mokutil stored this password's hash: PASSWORD_CRYPT of shim's PasswordCrypt.h, a method, rounds (64
    bits), the salt's length, the salt (32), the hash (128)."""
    size = int.from_bytes(stored[10:12], "little")
    salt = stored[12 : 12 + size].decode()
    shown = hash_password(password, salt).rpartition("$")[2]
    from gpuprov.fleet.enroll import password as room

    return shown == room._encode(stored[44:108])


def test_one_password_for_all_hosts_is_the_sites(tmp_path: Path, run: Run) -> None:
    (tmp_path / "hash").write_text(hash_password("correct horse", "saltsalt") + "\n")
    sheet = tmp_path / "console.txt"
    code, out, err = run("--sheet", str(sheet), "--hash-file", str(tmp_path / "hash"), "--console-wait", "-1")
    assert code == 1, out + err
    assert sheet.read_text().count("password: the site's, whose hash was given with --hash-file") == 4
    assert sheet.read_text().count("note: MokManager waits until a key is pressed") == 4
    code, _, err = run("--sheet", str(tmp_path / "zero"), "--console-wait", "0")
    assert (code, "allowed: -1 (without an end), 1 to 32767" in err) == (2, True)
    (tmp_path / "hash").write_text("correct horse\n")
    code, _, err = run("--sheet", str(tmp_path / "other"), "--hash-file", str(tmp_path / "hash"))
    assert (code, "holds no hash of a password" in err, "correct horse" in err) == (2, True, False)


def test_without_a_sheet_nothing_is_requested(tmp_path: Path, run: Run) -> None:
    lost = UnreachableError("gpu4: no route", "")
    code, out, err = run("--json", gpu3=host_facts(secure_boot=""), gpu4=lost)
    assert code == 4, out + err
    jsonschema.validate(json.loads(out), json.loads(document_schema("enroll")))
    assert [host["state"] for host in json.loads(out)["hosts"]] == [
        "not enrolled",
        "not enrolled",
        "not needed",
        "unreachable",
    ]
    assert not (tmp_path / "hosts").exists()
    assert run("--again")[0] == 2


def test_a_request_that_another_run_made_meanwhile_keeps_its_password(tmp_path: Path, run: Run) -> None:
    """The sheet does not hold a password that the host does not know."""
    assert run("--sheet", str(tmp_path / "one"))[0] == 1
    code, out, _ = run("--sheet", str(tmp_path / "two"))
    assert (code, "by a request that came before this one" in out) == (1, True)
    assert (tmp_path / "two").read_text().count("password: on the sheet of the run that made the request") == 4
    known = re.findall(r"password: ([a-z]{14})\n", (tmp_path / "one").read_text())
    assert run("--sheet", str(tmp_path / "three"), "--again")[0] == 1
    again = re.findall(r"password: ([a-z]{14})\n", (tmp_path / "three").read_text())
    assert (len(set(known + again)), len(again)) == (8, 4)


def test_a_sheet_of_requests_that_all_failed_is_not_left(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Output("looked|1\n", 1, "Failed to enroll new keys")
    monkeypatch.setattr(enroll, "run_all", lambda jobs, _: None)
    monkeypatch.setattr(
        enroll, "request",
        lambda raws, hosts, *_: [enroll.judge_answer(host, failed) for host in hosts],
    )  # fmt: skip
    code, out, _ = run("--sheet", str(tmp_path / "console.txt"))
    assert (code, "Failed to enroll new keys" in out) == (3, True)
    assert not (tmp_path / "console.txt").exists()


def test_a_sheet_keeps_the_password_of_a_request_that_may_be_there(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script was ended, or the connection lost, after mokutil had begun."""

    def request(_raws: Any, hosts: list[enroll.Host], *_: Any) -> list[enroll.Host]:
        done = {host.host: host for host in hosts}
        done["gpu1"] = enroll.judge_answer(done["gpu1"], Output("begun|1\n", TIMED_OUT))
        done["gpu2"] = enroll.judge_answer(done["gpu2"], Output(READY))
        enroll._record(done["gpu3"], done, lambda _: None, None)(UnreachableError("no \x1b[2Jroute", ""))
        return [*done.values()]

    monkeypatch.setattr(enroll, "request", request)
    code, out, _ = run("--sheet", str(tmp_path / "console.txt"))
    assert (code, "unknown" in out) == (3, True)
    text = (tmp_path / "console.txt").read_text()
    assert re.findall(r"\[ \] (gpu\d)\n    password: [a-z]{14}\n", text) == ["gpu1", "gpu3", "gpu4"]
    assert text.count("note: it may have no request: ") == 2
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("connection", "refused"),
    [
        ({}, False),
        ({"ansible_become": True}, False),
        ({"ansible_become": True, "ansible_become_password": "s3cret"}, True),
        ({"ansible_become_password": "s3cret"}, False),
        ({"ansible_become": True, "ansible_become_method": "su"}, True),
        ({"ansible_password": "s3cret", "ansible_become": True, "ansible_become_pass": "s3cret"}, True),
        ({"ansible_connection": "aws_ssm"}, True),
    ],
)
def test_no_hash_goes_into_an_argument_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connection: dict[str, object], refused: bool
) -> None:
    """Hosts on which it would are refused, and the others' commands do not hold it."""
    raw = RawHost(name="gpu1", connection={"ansible_user": "kim", **connection})
    monkeypatch.setattr(enroll, "gather_each", lambda hosts, note, **_: note("gpu1", host_facts()))
    (host,) = enroll.read_hosts([(raw, driver(tmp_path))], again=False, pace=Pace(0), timeout=1.0)
    assert (host.state, host.requested) == (("refused", False) if refused else ("not enrolled", True))
    assert ("sudo without a password" in host.fix) == refused
    if not refused:
        argv, stdin = remote_command(Settings(raw), "SECRET")
        assert (any("SECRET" in word for word in argv), stdin) == (False, b"SECRET")
