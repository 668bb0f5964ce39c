"""A mistake in the form of an inventory hides none in its specs, nor one of a host those of another."""

from pathlib import Path

import pytest

from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.problem import SpecError

WRONG = "{nvidia_driver: {version: 580, kernel_module: open}}"
VARS = f"  vars:\n    gpuprov: {WRONG}\n"
SPEC = ("nvidia_driver.version is 580", 'unknown key "kernel_module"')
INI = """[a:vars]\ngpuprov={"nvidia_driver": {"version": "580", "kernel_module": "open"}}\n"""

ROWS: list[tuple[str, str, tuple[str, ...]]] = [
    ("inventory.yaml", f"all:\n  hosts: {{'gpu[01-08]': }}\n{VARS}", ("write gpu[01:08]", *SPEC)),
    ("inventory.yaml", f"all:\n  hosts: {{'gpu[01:aa]': }}\n{VARS}", ('the range in "gpu[01:aa]"', *SPEC)),
    ("inventory.yaml", f"all:\n  hosts: [gpu01, gpu02]\n{VARS}", ('hosts of group "all" is a list', *SPEC)),
    ("inventory.yaml", f"all:\n  host: {{gpu01: }}\n{VARS}", ('did you mean "hosts"?', *SPEC)),
    ("inventory.yaml", f"hosts: {{gpu01: }}\nall:\n{VARS}", ('"hosts" stands where a group belongs', *SPEC)),
    ("inventory.yaml", f"all:\n  hosts: {{gpu01: }}\n  gpuprov: {WRONG}\n", ('"gpuprov" stands directly', *SPEC)),
    ("inventory.yaml", f"all:\n  hosts:\n    gpu01:\n    gpu01:\n{VARS}", ('"gpu01" is written twice', *SPEC)),
    ("inventory.yaml", f"all:\n  hosts:\n    gpu01: {{gpuprov: *base}}\n{VARS}", (":3:22: the file refers to", *SPEC)),
    ("inventory.yaml", f"all:\n  hosts:\n    gpu01: {{gpuprov: {{<<: *base}}}}\n{VARS}", (":3:27: the file", *SPEC)),
    ("inventory.yaml", f"all:\n  hosts:\n    gpu01: {{gpuprov: !env X}}\n{VARS}", (":3:22: the tag !env", *SPEC)),
    ("inventory.yaml", f"all:\n  hosts:\n    gpu01: {{a: {{{{ b }}}}}}\n{VARS}", ("a template that is not", *SPEC)),
    ("inventory.yaml", f"all:\n  hosts:\n    gpu01: {{a: @b}}\n{VARS}", ("YAML keeps for itself", *SPEC)),
    ("inventory.yaml", f"all:\n  hosts: {{gpu01: , gpu02: {{gpuprov: 7}}}}\n{VARS}", ("gpuprov is 7", *SPEC)),
    ("inventory.yaml", f"all:\n  hosts: {{gpu01: {{ansible_port: x}}}}\n{VARS}", ("ansible_port is", *SPEC)),
    ("hosts.ini", f"[a]\ngpu[01-08] x=1\n{INI}", ("hosts.ini:2:1: the range", SPEC[1])),
    ("hosts.ini", f"[a]\ngpu01\ngpu02 b\n{INI}", ('hosts.ini:3:7: "b" is not a variable', SPEC[1])),
    ("hosts.ini", f"[a]\ngpu01\n{INI}ansible_user: x\n", ("write ansible_user=x", SPEC[1])),
    ("hosts.ini", f"\ufeff[a]\ngpu01\n{INI}", ("byte order mark", SPEC[1])),
    (
        "inventory.yaml",
        f"all:\n  hosts:\n    gpu01: {{a: *b}}\n    gpu02:\n    gpu02:\n{VARS}",
        (":3:16: the file refers", '"gpu02" is written twice', *SPEC),
    ),
    ("hosts.ini", f"[a]\n\ngpu01\n\ngpu02 b\n{INI}", ('hosts.ini:5:7: "b" is not a variable', SPEC[1])),
    ("hosts.ini", f"[a]\ngpu01\n[b c]\n{INI}", ("write [b_c]", SPEC[1])),
    ("hosts.ini", f"[a]\ngpu01\n{INI.replace(':vars', ':var')}", ("write [a:vars]", SPEC[1])),
    ("hosts.ini", f'[a]\ngpu01 gpuprov={{"mig": {{}}}}\n{INI}', ("gpuprov='{", SPEC[1])),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2][0])
def test_form_hides_nothing(
    row: tuple[str, str, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, text, wanted = row
    Path(name).write_text(text)
    with pytest.raises(SpecError) as caught:
        load_fleet([name])
    lines = str(caught.value).splitlines()
    assert len(lines) == len(wanted), lines
    for words in wanted:
        assert any(words in line for line in lines), lines


def test_a_file_of_one_group_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts whose variables cannot be read are not judged: the file that is not read may be what they lack."""
    monkeypatch.chdir(tmp_path)
    Path("inventory.yaml").write_text(
        "all:\n  children:\n    a: {hosts: {a1: }}\n    b: {hosts: {b1: , b2: }}\n    c: {hosts: {c1: }}\n"
    )
    for folder, name, text in (
        ("group_vars", "a.yml", "gpuprov: }\n"),
        ("group_vars", "b.yml", "gpuprov: {moose: {}}\n"),
        ("group_vars", "c.yml", "gpuprov: {mig: {layout: [{gpus: [x], instances: {1g.10gb: 1}}]}}\n"),
        ("host_vars", "a1.yml", "gpuprov: {kernel: {elk: 1}}\n"),
        ("host_vars", "c1.yml", "- x\n"),
    ):
        Path(folder).mkdir(exist_ok=True)
        Path(folder, name).write_text(text)
    with pytest.raises(SpecError) as caught:
        load_fleet(["inventory.yaml"])
    assert [line.partition("; ")[0] for line in str(caught.value).splitlines()] == [
        "group_vars/a.yml:1:10: not valid YAML: while parsing a block node did not find expected node content",
        'group_vars/b.yml:1:11: unknown key "moose"',
        "host_vars/c1.yml:1:1: a file of variables is a list",
    ]


def test_a_file_that_reaches_no_host_is_told_beside_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("host_vars").mkdir()
    Path("host_vars/gpu1.yml").write_text("gpuprov: {nouveau: {}}\n")
    Path("inventory.yaml").write_text(f"all:\n  hosts: {{gpu01: }}\n{VARS}")
    with pytest.raises(SpecError) as caught:
        load_fleet(["inventory.yaml"])
    first, *errors = str(caught.value).splitlines()
    assert first.startswith("host_vars/gpu1.yml:1:1: warning: the gpuprov in this file reaches no host")
    assert len(errors) == len(SPEC)


def test_mended_files_are_refused_without_a_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads hosts alone gets none from an inventory with mistakes."""
    from gpuprov.inventory import load

    monkeypatch.chdir(tmp_path)
    Path("inventory.yaml").write_text("all:\n  hosts: {'gpu[01-08]': }\n")
    with pytest.raises(SpecError, match="write gpu"):
        load(["inventory.yaml"])
