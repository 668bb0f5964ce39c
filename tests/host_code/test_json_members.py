"""Members of a JSON document of others are compared and set; comments and the rest of it stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuprov.host_code.files import Refused, bring_about, merge_lines
from gpuprov.host_code.json_members import NotJson, differing, with_keys
from tests.rows import run_each

CUFILE = """\
{
    // NOTE : Application can override custom configuration via export CUFILE_ENV_PATH_JSON=<filepath>
    "logging": {
        // "dir": "/home/<xxxx>",
        "level": "ERROR" /* one of many */
    },
    "properties": {
            "max_direct_io_size_kb" : 16384, // in KB
            "allow_compat_mode": true,
            "rdma_dev_addr_list": [ ]
    },
    "fs": { }
}
"""


def stripped(text: str) -> object:
    return json.loads("\n".join(line.partition("//")[0].partition("/*")[0] for line in text.splitlines()))


@run_each(
    ("key", "value", "found"),
    [
        ("properties.allow_compat_mode", "true", None),
        ("properties.allow_compat_mode", "false", "properties.allow_compat_mode=true"),
        ("properties.max_direct_io_size_kb", "16384", None),
        ("properties.max_direct_io_size_kb", '"16384"', "properties.max_direct_io_size_kb=16384"),
        ("properties.rdma_dev_addr_list", "[]", None),
        ("properties.rdma_dev_addr_list", '["192.0.2.1"]', "properties.rdma_dev_addr_list=[ ]"),
        ("properties.use_pci_p2pdma", "true", ""),
        ("logging.dir", '"/var/log"', ""),
        ("block.nvme.use_pci_p2pdma", "true", ""),
        ("logging.level.deep", "1", ""),
        ("logging.level", '"ERROR"', None),
    ],
)
def test_a_member_is_compared_and_set(key: str, value: str, found: str | None) -> None:
    assert differing(CUFILE, {key: value}) == ({} if found is None else {key: found})
    after = with_keys(CUFILE, {key: value})
    assert differing(after, {key: value}) == {}
    assert with_keys(after, {key: value}) == after
    if found is None:
        assert after == CUFILE
    else:
        assert "// NOTE : Application can override" in after
        known = stripped(after)
        for name in key.split("."):
            assert isinstance(known, dict)
            known = known[name]
        assert known == json.loads(value)


def test_many_members_of_one_object_and_the_rest_of_the_document() -> None:
    keys = {
        "properties.use_pci_p2pdma": "true",
        "block.nvme.use_pci_p2pdma": "true",
        "block.raid.use_pci_p2pdma": "false",
    }
    after = stripped(with_keys(CUFILE, keys))
    expected = stripped(CUFILE)
    assert isinstance(expected, dict)
    expected["properties"]["use_pci_p2pdma"] = True
    expected["block"] = {"nvme": {"use_pci_p2pdma": True}, "raid": {"use_pci_p2pdma": False}}
    assert after == expected


def test_true_is_no_number() -> None:
    assert differing('{"a": 1}', {"a": "true"}) == {"a": "a=1"}


def test_the_last_of_two_members_counts() -> None:
    assert differing('{"a": {"b": 1}, "a": {"b": 2}}', {"a.b": "2"}) == {}
    assert differing('{"a": {"b": 1}, "a": {}}', {"a.b": "1"}) == {"a.b": ""}


def test_an_empty_document() -> None:
    assert json.loads(with_keys("", {"a.b": "1"})) == {"a": {"b": 1}}
    assert json.loads(with_keys("{}", {"a": "1", "c": "2"})) == {"a": 1, "c": 2}


@run_each("text", ["[]", "1", "{", '{"a"', '{"a": }', '{"a": 1} x', '{"a": [1 2]}', "{1: 2}", "{" * 99, '{"a" 1}'])
def test_what_is_no_document_is_not_touched(text: str, tmp_path: Path) -> None:
    with pytest.raises(NotJson, match="line 1"):
        with_keys(text, {"a": "2"})
    file = tmp_path / "cufile.json"
    file.write_text(text)
    with pytest.raises(Refused, match=r"cufile\.json: line 1 .* Fix: correct it"):
        merge_lines(str(file), {"a": "2"})
    assert file.read_text() == text


def test_a_deep_array_ends_with_an_error() -> None:
    with pytest.raises(NotJson):
        differing('{"a": ' + "[" * 99 + "]" * 99 + "}", {"a": "1"})


def test_a_file_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "cufile.json"
    file.write_text(CUFILE)
    keys = {"properties.allow_compat_mode": "false"}
    assert [change.path for change in bring_about([merge_lines(str(file), keys)])] == [str(file)]
    assert file.read_text() == CUFILE.replace('"allow_compat_mode": true', '"allow_compat_mode": false')
    assert bring_about([merge_lines(str(file), keys)]) == []
