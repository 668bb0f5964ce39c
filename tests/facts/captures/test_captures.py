"""gpuprov's own captures: what comes back is what was read, and no secret is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.core.masking import masked
from gpuprov.facts.captures import RecordedFacts, captured, read
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.verify import recorded
from gpuprov.verify.evaluate import evaluate
from tests.capabilities.asking import good
from tests.facts.captures.test_reports import fleet
from tests.rows import run_each

SECRETS = {
    "https://site:hunter2@mirror.example/repo": "https://***@mirror.example/repo",
    "http_proxy=http://site:hun@ter2@proxy:3128/": "http_proxy=http://***@proxy:3128/",
    'machine x login y "password": "with a \\" quote"': 'machine x login y "password": "***"',
    "ANSIBLE_TOKEN=abc123def": "ANSIBLE_TOKEN=***",
    "AccountingStoragePass=hunter22": "AccountingStoragePass=***",
    "//nas/share /mnt cifs user=site,pass=hunter2,uid=0": "//nas/share /mnt cifs user=site,pass=***,uid=0",
    "machine x login y password hunter2": "machine x login y password ***",
    "client-key-data: LS0tLS1CRUdJTiBS": "client-key-data: ***",
    "password_pbkdf2 root grub.pbkdf2.sha512.10000.0A1B2C3D4E5F60718293A4B5.C6D7": "password_pbkdf2 root ***",
    "zypper --proxy-password hunter22 -n up": "zypper --proxy-password *** -n up",
    "subscription-manager register --password 'a b' --force": "subscription-manager register --password '***' --force",
    "auths: {registry: {auth: dXNlcjpwYXNz}}": "auths: {registry: {auth: ***}}",
    "Authorization: Bearer abcdefgh.ijklmnop": "Authorization: Bearer ***",
    "Authorization: Bearer hunter2": "Authorization: Bearer ***",
    "'Authorization': 'token hunter2'": "'Authorization': 'token ***'",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4": "***",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----\nafter": "***\nafter",
    "-----BEGIN PRIVATE KEY-----\ncut off": "***",
    "aws_access_key_id = AKIAABCDEFGHIJKLMNOP": "aws_access_key_id = ***",
    "the become word is s3cret-word here": "the become word is *** here",
}
NO_SECRETS = (
    "net.sctp.auth_enable = 1",
    "kernel.keys.root_maxkeys = 1000000",
    "key_file: /etc/keys/private_key_file",
    "tls_private_key_path = /etc/ssl/key.pem",
    "token: true",
    "2026-11-30 19:44:46 install base-passwd:amd64 <none> 3.6.7",  # a package and its architecture
    "helm login --password-stdin registry.example",
    "kubeadm join --token-file /etc/token --discovery-token -v",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ host",
    "deb [signed-by=/usr/share/keyrings/x.gpg] http://mirror.example/debian bookworm main",
    "GPU-00000001-0000-0000-0000-000000000000",
    "https://mirror.example/a@b",
    "nvidia.bypass=x1 pass=1 Pass: memory",
    "login failed: password incorrect",
)


def facts() -> Facts:
    return Facts({name: Output(value) if isinstance(value, str) else value for name, value in good().items()})


def test_what_comes_back_is_judged_as_the_host_was(tmp_path: Path) -> None:
    here = facts()
    (tmp_path / captured.file_name("gpu017")).write_text(captured.text(captured.made("gpu017", here, "0.1.0")))
    (record,) = read(tmp_path)
    back = RecordedFacts(record)
    assert (record.host, record.kind, back.read_at) == ("gpu017", "capture", here.read_at)
    assert back.outputs() == here.outputs()
    for _, spec in fleet():
        assert evaluate(spec, back) == evaluate(spec, here)


def test_secrets_are_masked_and_nothing_else() -> None:
    for text, expected in SECRETS.items():
        assert masked(text, ["s3cret-word"]) == (expected, 1), text
    for text in NO_SECRETS:
        assert masked(text) == (text, 0)


def test_a_masked_configuration_can_still_be_read() -> None:
    text = json.dumps(
        {"auths": {"registry.example": {"auth": "dXNlcjpwYXNz"}}, "password": "a b", "live-restore": True}
    )
    assert json.loads(masked(text)[0]) == {
        "auths": {"registry.example": {"auth": "***"}},
        "password": "***",
        "live-restore": True,
    }


def test_a_capture_counts_what_it_hides() -> None:
    made = captured.made("gpu017", Facts({"x": Output("password=hunter22\n", 1, "token: abcdefgh")}), "0.1.0")
    assert (made.masked, made.outputs["x"]) == (2, Output("password=***\n", 1, "token: ***"))


def test_each_host_has_a_file_of_its_own() -> None:
    names = ["g\u00e4rb", "g\u00f6rb", "g%rb", "g+rb", "g_rb", "g%C3%A4rb", "garb:", "garb_", ".garb", "%2Egarb"]
    files = [captured.file_name(name) for name in names]
    assert len(set(files)) == len(names)
    assert [captured.host_of(file) for file in files] == names


def test_a_capture_that_cannot_be_read_costs_only_its_own_host(tmp_path: Path) -> None:
    for host in ("gpu017", "gpu018"):
        (tmp_path / captured.file_name(host)).write_text(captured.text(captured.made(host, facts(), "0.1.0")))
    (tmp_path / captured.file_name("gpu018")).write_text('{"gpuprov_capture": ' + "9" * 4001)
    results = recorded.verify(fleet(), read(tmp_path))
    assert {one.status for one in results if one.host == "gpu017"} > {"pass"}
    (bad,) = [one for one in results if one.host == "gpu018"]
    assert (bad.status, bad.check) == ("unreachable", "host.reachable")
    assert "its capture cannot be read" in bad.found


@pytest.mark.install
def test_what_a_host_may_print_can_be_captured_and_read_back(tmp_path: Path) -> None:
    """A control character is one byte of a host's and six of a capture's."""
    made = captured.made("gpu017", Facts({"x": Output("\x01" * (5 << 20))}), "0.1.0")
    (tmp_path / captured.file_name("gpu017")).write_text(captured.text(made))
    (record,) = read(tmp_path)
    assert record.fault == ""
    assert record.outputs == made.outputs


@run_each("name", ["../../etc/passwd", "/etc/passwd", ".hidden", "a b", "gpu\n017"])
def test_a_hosts_name_is_never_a_path(name: str) -> None:
    file = captured.file_name(name)
    assert "/" not in file
    assert captured.host_of(file) == name
    assert not file.startswith(".")
    assert file.isprintable()


@run_each(
    ("text", "why"),
    [
        (
            '{"gpuprov_capture": 1, "version": "9", "host": "x", "outputs": {}}',
            "a capture of form 1, made by gpuprov 9; allowed: form 2, as this gpuprov",
        ),
        ('{"gpuprov_capture": 2, "host": "x", "outputs": {"a": {"text": 5}}}', "a damaged capture of gpuprov"),
        (
            '{"gpuprov_capture": 2, "host": "x", "outp',
            "a damaged capture of gpuprov: .*truncated; allowed: a whole one",
        ),
        ('{"some": "json"}', "no capture of gpuprov"),
        ("[" * 100_000, "none of the records"),
        ('{"a":' * 100_000, ""),
    ],
)
def test_what_is_no_capture_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(GpuprovError, match=rf"x\.json cannot be read: .*{why}"):
        read(path)
