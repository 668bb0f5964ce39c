"""A value from a vault, and user name and password of a URL, stand in nothing that gpuprov prints or writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect as shape

from gpuprov.__main__ import main
from gpuprov.capabilities import CAPABILITIES, HOUSE
from gpuprov.core import sanitize
from gpuprov.spec.build import convert
from tests.inventory.files import indented, lay, locked

SECRET = "CANARY-7f3a-vault"
PASSWORD = "CANARY+pw"
SPEC = """\
all:
  vars:
    gpuprov:
      %s
  hosts: {gpu01: {ansible_connection: local}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lay({"key": "hunter2"})
    yield tmp_path
    sanitize.reveal()


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["gpuprov", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out.out + out.err


def inline(text: str) -> str:
    return "word: !vault |\n" + indented(locked(text), 2)


WRONG = {
    "a word": "nvidia_driver: {version: '{{ word }}'}",
    "part of a word": "nvidia_driver: {version: 'v{{ word }}'}",
    "a path": "nvidia_driver: {source: runfile, runfile: {file: '/nowhere/{{ word }}', sha256: '%s'}}" % ("a" * 64),
    "a key": "kernel: {command_line: {'{{ word }}': {a: 1}}}",
    "a list": "mig: {layout: ['{{ word }}']}",
    "a block": "nouveau: '{{ word }}'",
    "the whole": "'{{ word }}': {}",
    "in a rule": "gpu: {model: '{{ word }}', count: 8}",
    "an item of a rule": "nvidia_driver: {source: mirror, repository: {url: 'https://m.example/x', suite: '{{ word "
    "}}', key_file: k}}",
}
FILES = {"inline": inline(SECRET), "whole": locked(f"word: {SECRET}\n"), "long": inline(f"{SECRET}{'x' * 70}")}


@pytest.mark.install
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("place", WRONG)
def test_no_message_repeats_a_value_from_a_vault(
    place: str, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lay({"inventory.yaml": SPEC % WRONG[place], "group_vars/all.yml": FILES[kind]})
    for words in (["check"], ["check", "--json"], ["fleet", "freeze", "--out", "f.json"], ["render", "--out", "r"]):
        _, text = said(capsys, monkeypatch, *words, "inventory.yaml", "--vault-password-file", "key")
        assert SECRET not in text, text
        assert json.dumps(SECRET)[1:8] not in text, text


def test_a_broken_file_of_a_vault_is_told_without_its_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for broken in (
        f"word: {SECRET}\n  x: [{SECRET}\n",
        f"- {SECRET}\n",
        f"word: '{SECRET}\n",
        f"{SECRET}: 1\n{SECRET}: 2\n",
    ):
        lay({"inventory.yaml": SPEC % "nouveau: {}", "group_vars/all.yml": locked(broken)})
        _code, text = said(capsys, monkeypatch, "check", "inventory.yaml", "--vault-password-file", "key")
        assert SECRET not in text, text


@pytest.mark.install
def test_a_vaulted_value_that_is_right_is_written_into_no_file_that_is_handed_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    lay({"inventory.yaml": SPEC % "kernel: {command_line: {word: '{{ word }}'}}", "group_vars/all.yml": inline(SECRET)})
    given = ("inventory.yaml", "--vault-password-file", "key")
    assert said(capsys, monkeypatch, "check", *given) == (0, "1 host valid\n")
    for words in (["fleet", "freeze", "--out", "f.json"], ["render", "--out", "r"]):
        code, text = said(capsys, monkeypatch, *words, *given)
        assert (code, SECRET in text) == (2, False)
        assert "gpu01: kernel.command_line.word holds a value from the vault, or" in text
    for words in (["plan"], ["verify"], ["verify", "--json"], ["verify", "--html", "p.html", "--junit", "j.xml"]):
        _, text = said(capsys, monkeypatch, *words, *given)
        assert SECRET not in text
    assert not [path for path in here.rglob("*") if path.is_file() and SECRET in path.read_text(errors="replace")]


@pytest.mark.install
def test_a_vaulted_connection_variable_is_left_out_like_a_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    lay(
        {
            "inventory.yaml": SPEC % "nouveau: {}",
            "group_vars/all.yml": f"ansible_user: '{{{{ word }}}}'\n{inline(SECRET)}",
        }
    )
    given = ("inventory.yaml", "--vault-password-file", "key")
    for words in (["fleet", "freeze", "--out", "f.json"], ["render", "--out", "r"]):
        code, text = said(capsys, monkeypatch, *words, *given)
        assert (code, SECRET in text) == (0, False)
    assert json.loads((here / "f.json").read_text())["hosts"][0]["secrets"] == ["ansible_user"]
    assert not [path for path in here.rglob("*") if path.is_file() and SECRET in path.read_text(errors="replace")]


def test_words_of_gpuprov_are_no_secrets(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    vault = "gpuprov: {rdma: {fabric: infiniband}, gpu: {model: H100-SXM5-80GB}}\nansible_connection: local\n"
    lay({"inventory.yaml": "all: {hosts: {gpu01: {}}}", "group_vars/all.yml": locked(vault)})
    given = ("inventory.yaml", "--vault-password-file", "key")
    assert said(capsys, monkeypatch, "check", *given)[0] == 0
    assert sanitize.masked("H100-SXM5-80GB on infiniband") == "H100-SXM5-80GB on infiniband"
    assert said(capsys, monkeypatch, "fleet", "freeze", *given, "--out", "f.json")[0] == 0


def texts(kind: shape.Type, path: str) -> Iterator[tuple[str, shape.StrType]]:
    if isinstance(kind, shape.Metadata):
        yield from texts(kind.type, path)
    elif isinstance(kind, shape.UnionType):
        for one in kind.types:
            yield from texts(one, path)
    elif isinstance(kind, shape.StructType):
        for field in kind.fields:
            yield from texts(field.type, f"{path}.{field.encode_name}")
    elif isinstance(kind, shape.VarTupleType | shape.ListType):
        yield from texts(kind.item_type, path)
    elif isinstance(kind, shape.DictType):
        yield from texts(kind.value_type, path)
    elif isinstance(kind, shape.StrType):
        yield path, kind


ENDS = ("", "/a.tar.gz", "/a.deb", "/a.run", "/a/", "/hpcx.tbz")


def test_every_field_for_an_address_refuses_user_name_and_password() -> None:
    addresses = []
    for one in (HOUSE, *CAPABILITIES):
        for path, kind in texts(shape.type_info(one.fragment), one.name):
            meta: Any = msgspec.Meta(pattern=kind.pattern)

            def takes(text: str, meta: Any = meta) -> bool:
                from typing import Annotated

                try:
                    msgspec.convert(text, Annotated[str, meta])
                except msgspec.ValidationError:
                    return False
                return True

            named = path.rpartition(".")[2].endswith(("url", "uri", "endpoint", "mirror"))
            if not named and "://" not in (kind.pattern or ""):
                continue
            addresses.append(path)
            assert sanitize.masked(str(kind.pattern)) == kind.pattern, "gpuprov schema prints it"
            for login in ("bob:pw@", "bob@", ":pw@", "bob:p/w@", "bob:p@w@", "b%40b:pw@", "bob:pw\\@"):
                for end in ENDS:
                    assert not takes(f"https://{login}host{end}"), path
                    assert not takes(f"http://{login}host{end}"), path
            assert any(takes(f"https://host:8443{end}") for end in ENDS), path
            assert any(takes(f"https://[fd00::1]{end}") for end in ENDS), path
    assert {path.rpartition(".")[0] for path in addresses} >= {"nvidia_driver.runfile", "nvidia_driver.repository"}
    assert any("acceptance" in path for path in addresses)


@pytest.mark.parametrize(
    "address",
    [
        f"https://bob:{PASSWORD}@mirror.example/nvb.tar.gz",
        f"https://bob:{PASSWORD}@ss@mirror.example/nvb.tar.gz",
        f"https://bob:pa/{PASSWORD}@mirror.example/nvb.tar.gz",
        f"https://{PASSWORD}@mirror.example/nvb.tar.gz",
        f"ftp://bob:{PASSWORD}@mirror.example/nvb.tar.gz",
        f"https://bob:{PASSWORD}{'x' * 70}@mirror.example/nvb.tar.gz",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    block = f'acceptance: {{nvbandwidth: {{source: {{url: "{address}", sha256: {"a" * 64}}}}}}}'
    lay({"inventory.yaml": SPEC % block})
    for words in (["check"], ["check", "--json"], ["fleet", "freeze", "--out", "f.json"], ["render", "--out", "r"]):
        code, text = said(capsys, monkeypatch, *words, "inventory.yaml")
        assert (code, PASSWORD in text) == (2, False), text
        assert "acceptance.nvbandwidth.source.url is " in text


def test_site_variables_for_addresses_take_no_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("container_toolkit_repository", "container_toolkit_repository_key"):
        spec = (SPEC % "container_toolkit: {}").replace(
            "  hosts:", f"    {name}: https://bob:{PASSWORD}@m.example/x\n  hosts:"
        )
        lay({"inventory.yaml": spec})
        code, text = said(capsys, monkeypatch, "check", "inventory.yaml")
        assert (code, PASSWORD in text, f"{name} is " in text) == (2, False, True), text


WITH_QUERY = {
    "a runfile": "nvidia_driver: {source: runfile, runfile: {url: 'https://m.example/a.run%s', sha256: '%s'}}",
    "a repository": "nvidia_driver: {source: mirror, repository: {url: 'https://m.example/x%s', key_file: k}}",
    "a key": "nvidia_driver: {source: mirror, repository: {url: 'https://m.example/x', key_url: "
    "'https://m.example/k%s'}}",
    "a source": "acceptance: {nccl: {source: {url: 'https://m.example/a.tar.gz%s', sha256: '%s'}}}",
    "an installer": "rdma: {efa: {url: 'https://m.example/aws-efa-installer-1.47.0.tar.gz%s&x=.tar.gz', sha256: '%s'}}",
}


@pytest.mark.parametrize("place", WITH_QUERY)
def test_an_address_takes_no_query_and_nothing_repeats_one(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said_of = WITH_QUERY[place].replace("%s", "?sig=CANARY%2Bquery", 1).replace("%s", "a" * 64)
    lay({"inventory.yaml": SPEC.replace("%s", said_of)})
    for words in (["check"], ["check", "--json"], ["fleet", "freeze", "--out", "f.json"], ["render", "--out", "r"]):
        code, text = said(capsys, monkeypatch, *words, "inventory.yaml")
        assert code == 2
        assert "CANARY" not in text
        assert re.search("without (user name, password and )?query", text)
        assert "?********" in text


def test_site_variables_for_addresses_take_no_query(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SPEC % "container_toolkit: {}"
    line = "    container_toolkit_repository: https://m.example/x?token=CANARY-query\n  hosts:"
    lay({"inventory.yaml": spec.replace("  hosts:", line)})
    code, text = said(capsys, monkeypatch, "check", "inventory.yaml")
    assert (code, "CANARY" in text, "container_toolkit_repository is " in text) == (2, False, True), text


LOOKED_UP = {
    "env": "{{ lookup('env', 'CI_TOKEN') }}",
    "pipe": "{{ lookup('ansible.builtin.pipe', 'echo CANARY-looked') }}",
    "query": "{{ query('env', 'CI_TOKEN') | first }}",
    "file": "{{ lookup('file', 'ci.token') }}",
    "of a variable": "{{ inner }}",
}


@pytest.mark.parametrize("kind", LOOKED_UP)
def test_a_secret_that_is_looked_up_is_masked_and_has_a_place(
    kind: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_TOKEN", "CANARY-looked")
    inner = """    inner: "{{ lookup('env', 'CI_TOKEN') }}"\n  hosts:"""
    spec = SPEC.replace("%s", f'nvidia_driver: {{version: "{LOOKED_UP[kind]}"}}').replace("  hosts:", inner)
    lay({"inventory.yaml": spec, "ci.token": "CANARY-looked\n"})
    code, text = said(capsys, monkeypatch, "check", "inventory.yaml")
    assert (code, "CANARY" in text) == (2, False), text
    assert text.startswith("inventory.yaml:4:"), text
    assert "nvidia_driver.version is a value from the vault" in text or '"********"' in text


def test_what_is_looked_up_and_no_secret_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIVER", "five-hundred")
    lay({"inventory.yaml": SPEC % """nvidia_driver: {version: "{{ lookup('env', 'DRIVER') }}"}"""})
    code, text = said(capsys, monkeypatch, "check", "inventory.yaml")
    assert (code, text.partition(";")[0]) == (2, 'inventory.yaml:4:32: nvidia_driver.version is "five-hundred"')


def test_a_login_without_a_scheme_is_masked() -> None:
    for text in (
        "admin:hunter2@mirror.example/x",
        '"admin:hunter2@mirror"; allowed',
        "http_proxy=admin:hunter2@proxy:3128",
        "admin:hun@ter2@h",
        "admin:hunter2:x@[::1]:80",
        "-i svc.deploy:hunter2@10.0.0.1,",
    ):
        masked = sanitize.masked(text)
        assert not any(word in masked for word in ("hun", "ter2", "admin", "deploy")), masked
        assert sanitize.has_login(text)
    for text in (
        "nvcr.io/nvidia/cuda:12.8@sha256:0123",
        "localhost:5000/cuda@sha256:0123",
        "10.0.0.1@o2ib:10.0.0.2@o2ib:/fs",
        "mgs@tcp:mgs2@tcp",
        "git@github.com:owner/repo",
        "mailto:bob@x.example",
        "root@10.0.0.1:22",
        "2026-11-30T12:00:01@h",
        "gpuprov-mps@gpu0.service: x",
        "see: bob@x.example",
    ):
        assert sanitize.masked(text) == text


def test_a_spec_with_a_login_in_a_source_keeps_it_to_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lay({"inventory.yaml": SPEC % "nvidia_driver: {version: any, source: 'admin:hunter2@mirror.example'}"})
    code, text = said(capsys, monkeypatch, "check", "inventory.yaml")
    assert (code, "hunter2" in text, "admin" in text) == (2, False, False), text


def test_what_is_masked_and_what_is_not() -> None:
    for text in (
        "https://m.example/x",
        "http://h:8080/a@b",
        "user@host",
        "https://h/x?a=b:c@d",
        "ssh://h:22 bob@x",
        "a://b: c@d",
        "https:/h/x",
    ):
        assert sanitize.masked(text) == text
    # A URL in the place of a file becomes a path beside the inventory.
    assert (
        sanitize.masked("/srv/https:/u:p@h/doca.deb cannot be read") == "/srv/https:/********@h/doca.deb cannot be read"
    )
    assert (
        sanitize.masked("deb [x] https://u:p@h/d y, https://u@h")
        == "deb [x] https://********@h/d y, https://********@h"
    )
    once = sanitize.masked("https://u:p@h/")
    assert sanitize.masked(once) == once
    sanitize.hide('pass"word\\1\nsecond line')
    assert sanitize.masked('{"a": "pass\\"word\\\\1", "b": "second line"}') == '{"a": "********", "b": "********"}'
    assert sanitize.masked("SECOND Line of it") == "******** of it"
    assert convert("second line", int)[1] == [((), " is a value from the vault", "allowed: a whole number")]
