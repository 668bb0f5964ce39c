"""What gpuprov writes for Ansible, and what it exports, says the same when it is read again, and runs nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.core import unsafe_yaml
from gpuprov.export import Exported
from gpuprov.inventory import load
from gpuprov.report.specs import show_export
from tests.rows import run_each
from tests.taint.canary import DELIMITERS, OTHERS, Nest


@pytest.fixture
def nest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nest:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Nest(tmp_path / "nest")


def everywhere(nest: Nest) -> dict[str, Any]:
    """Values with a canary of each kind as text, in a list, in a block, and as a key."""
    return {
        "text": nest.all()[0],
        "list": nest.all(),
        "block": {f"key{n}": canary for n, canary in enumerate(nest.all())},
        **dict.fromkeys(nest.all(), 1),
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_exported_is_read_again_as_it_was(nest: Nest, tmp_path: Path, as_json: bool) -> None:
    spec, user = everywhere(nest), nest.templates()[0]
    plain = {key: value for key, value in spec.items() if not unsafe_yaml.may_be_template(key)}
    assert len(spec) - len(plain) == len(DELIMITERS)
    exported = Exported({"all": {"hosts": {"gpu01": {"ansible_user": user, "gpuprov": spec}}}}, (), ())
    file = tmp_path / ("e.json" if as_json else "e.yaml")
    assert show_export(exported, file, as_json=as_json) == 0
    for _ in range(2):  # the second time from the cache, if it is kept
        (host,) = load([str(file)]).hosts
        assert host.values == (plain if as_json else spec)
        assert host.connection == {"ansible_user": user}
    assert nest.flown() == []


def test_json_says_which_keys_it_leaves_out(nest: Nest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = nest.templates()[0]
    exported = Exported(
        {"all": {"hosts": {"gpu01": {"gpuprov": {key: 1, "__ansible_vault": "x", "reboot": "never"}}}}}, (), ()
    )
    show_export(exported, None, as_json=True)
    told = capsys.readouterr()
    assert json.loads(told.out) == {"all": {"hosts": {"gpu01": {"gpuprov": {"reboot": "never"}}}}}
    assert "not exported: all.hosts.gpu01.gpuprov: the key" in told.err
    assert told.err.count("not exported") == 2


def test_only_what_looks_like_a_template_is_marked() -> None:
    plain = {"a": ["${HOME}", "{}", "{ {", "100%", "# jinja2:"], "b": {"c": 1, "d": None, "e": True}}
    assert unsafe_yaml.text(plain) == yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)
    assert unsafe_yaml.as_json(plain) == (json.dumps(plain, indent=2), [])
    assert unsafe_yaml.text({"a": "{{ b }}"}) == "a: !unsafe '{{ b }}'\n"


def test_a_document_is_data_as_a_whole(nest: Nest) -> None:
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import is_trusted_as_template

    value = everywhere(nest)
    read = DataLoader().load(_trusted(unsafe_yaml.document({"a": value, "b": "plain"})))
    assert read == {"a": value, "b": "plain"}
    strings = [one for one in _leaves(read) if isinstance(one, str)]
    assert len(strings) > 3 * len((*DELIMITERS, *OTHERS))
    assert not any(map(is_trusted_as_template, strings))
    assert is_trusted_as_template(DataLoader().load(_trusted("a: b"))["a"])  # and without it, it would be


@run_each("odd", ["\x00\x07\x1b[31m", "\x85\u2028", "\ufeff", "\U0001f600", " a: b #c\n\n d "])
def test_odd_characters_are_read_as_they_were(odd: str) -> None:
    from ansible.parsing.dataloader import DataLoader

    assert DataLoader().load(_trusted(unsafe_yaml.document({"a": odd, odd: 1}))) == {"a": odd, odd: 1}


def test_half_of_a_surrogate_pair_is_written_as_an_escape() -> None:
    told = unsafe_yaml.document({"a": "\ud800"})
    assert told.isascii()
    assert yaml.load(told.replace(unsafe_yaml.TAG, ""), yaml.SafeLoader) == {"a": "\ud800"}


def _trusted(text: str) -> Any:
    from ansible.template import trust_as_template

    return trust_as_template(text)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in (key, *_leaves(item))]
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list) else [value]
