"""Inventories that cannot be used: files, arguments of `load`, and the exact messages."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.inventory.files import GOOD

VARIABLE = "it is a variable: put it under vars of a group, or under a host"
MAPPING = "allowed: a mapping of blocks ({} for none)"
NO_PASSWORD = (
    "is encrypted with ansible-vault, and no password was given; give --vault-password-file FILE or --ask-vault-pass"
)
WRONG_PASSWORD = (
    "cannot be decrypted: none of the vault passwords given fits;"
    " give the right one with --vault-password-file or --ask-vault-pass"
)
RANGE = "for example gpu[01:16]"


class Bad(NamedTuple):
    """`files` are written, `source` is loaded, `messages` are told, no more and no less."""

    name: str
    files: dict[str, str | bytes]
    messages: list[str]
    source: str = "inventory.yaml"
    arguments: dict[str, Any] = {}


def yaml(name: str, text: str | bytes, *messages: str) -> Bad:
    """One inventory.yaml."""
    return Bad(name, {"inventory.yaml": text}, [f"inventory.yaml{message}" for message in messages])


def limited(pattern: str, *messages: str) -> Bad:
    """A good inventory with a bad --limit."""
    return Bad(f"limit {pattern}", {"inventory.yaml": GOOD}, list(messages), arguments={"limit": pattern})


def spec(text: str) -> str:
    """An inventory whose `gpuprov` is in flow style on line 3, from column 14 on."""
    return f"all:\n  vars:\n    gpuprov: {text}\n  hosts: {{gpu01: {{}}}}\n"


FORM = [
    yaml("empty", "", ": the inventory is empty; write all: {hosts: {NAME: {}}}"),
    yaml("only comments", "# later\n", ": the inventory is empty; write all: {hosts: {NAME: {}}}"),
    yaml("no hosts", "all:\n  vars: {a: 1}\n", ": the inventory has no hosts; add one under hosts"),
    yaml("a list", "- gpu01\n", ":1:1: the inventory is a list; allowed: a mapping of groups"),
    yaml("a word", "gpu01\n", ':1:1: the inventory is "gpu01"; allowed: a mapping of groups'),
    yaml(
        "hosts as list",
        "all:\n  hosts: [gpu01, gpu02]\n",
        ':2:3: hosts of group "all" is a list; allowed: a mapping (write "NAME:" for each)',
    ),
    yaml(
        "vars as list",
        "all:\n  vars: [a]\n  hosts: {gpu01: {}}\n",
        ':2:3: vars of group "all" is a list; allowed: a mapping of variables',
    ),
    yaml(
        "a host that is an address",
        "all:\n  hosts:\n    gpu01: 192.0.2.1\n",
        ':3:5: host "gpu01" is "192.0.2.1"; write {ansible_host: "192.0.2.1"}',
    ),
    yaml(
        "a host that is a word",
        "all:\n  hosts:\n    gpu01: training\n",
        ':3:5: host "gpu01" is "training"; allowed: a mapping of variables',
    ),
    *(
        yaml(
            f"hosts that are the text {text}",
            f"all:\n  hosts: {text}\n",
            f':2:3: hosts of group "all" is "{text}"; allowed: a mapping (write "NAME:" for each)',
        )
        for text in ("gpu01,gpu02", "gpu01 gpu02")
    ),
    yaml(
        "hosts that are a range in the words of Slurm",
        "all:\n  hosts: hgx[01-08]\n",
        ':2:10: the range in "hgx[01-08]" cannot be read; write hgx[01:08]',
    ),
    yaml(
        "blocks beside gpuprov",
        "all:\n  vars:\n    gpuprov:\n    nouveau: {}\n    a: 1\n  hosts: {gpu01: {gpuprov: , mig: {}}}\n",
        ":3:5: gpuprov is empty, and nouveau beside it is no part of it; indent nouveau by two more spaces than "
        "gpuprov",
        ":6:19: gpuprov is empty, and mig beside it is no part of it; indent mig by two more spaces than gpuprov",
    ),
    yaml(
        "a template without quotes, in braces",
        "all:\n  hosts: {gpu01: {}}\n  vars:\n    gpuprov: {nvidia_driver: {version: {{ a }}}}\n",
        ':4:40: a template that is not quoted; write it as key: "{{ name }}"',
    ),
    yaml(
        "a character that YAML keeps for itself",
        "all:\n  vars:\n    a: {b: @c}\n",
        ":3:12: a value begins with a character that YAML keeps for itself: @, ` or %; quote the whole value",
    ),
    yaml(
        "a host that is a number",
        "all:\n  hosts:\n    17: {}\n",
        ':3:5: a host of group "all" is called 17; allowed: a name (quote it)',
    ),
    yaml(
        "names that YAML takes for true and false",
        "all:\n  children:\n    off: {}\n  hosts:\n    on: {}\n",
        ":2:3: a group is called false; allowed: a name (quote it)",
        ':4:3: a host of group "all" is called true; allowed: a name (quote it)',
    ),
    yaml(
        "a group that is a list",
        "training: [gpu01]\n",
        ':1:1: group "training" is a list; allowed: hosts, vars, children',
    ),
    yaml(
        "misspelled sections, both told",
        "all:\n  host:\n    gpu01: {}\n  chilren: {}\n",
        ':2:3: unknown key "host" in group "all"; did you mean "hosts"?',
        ':4:3: unknown key "chilren" in group "all"; did you mean "children"?',
    ),
    yaml(
        "a misspelled section under an anchor",
        "training: &t\n  host:\n    gpu01: {}\nall: {hosts: {gpu02: {}}}\n",
        ':2:3: unknown key "host" in group "training"; did you mean "hosts"?',
    ),
    yaml(
        "a host where a section belongs",
        "training:\n  gpu01: {}\n",
        ':2:3: unknown key "gpu01" in group "training"; allowed: hosts, vars, children',
    ),
    yaml(
        "gpuprov in a group",
        "all:\n  gpuprov: {}\n  hosts: {gpu01: {}}\n",
        f':2:3: "gpuprov" stands directly in group "all"; {VARIABLE}',
    ),
    yaml(
        "gpuprov at the top",
        "gpuprov: {}\nall:\n  hosts: {gpu01: {}}\n",
        f':1:1: "gpuprov" stands where a group belongs; {VARIABLE}',
    ),
    yaml(
        "hosts at the top",
        "hosts:\n  gpu01: {}\n",
        ':1:1: "hosts" stands where a group belongs; put it into a group: "all: {hosts: ...}"',
    ),
    yaml(
        "ranges",
        "all:\n  hosts:\n    gpu[01:100]: {}\n    gpu[1]: {}\n    gpu[a:3]: {}\n",
        ':3:5: the range in "gpu[01:100]" cannot be read;'
        f" host range must specify equal-length begin and end formats; {RANGE}",
        f':4:5: the range in "gpu[1]" cannot be read; host range must be begin:end or begin:end:step; {RANGE}',
        f':5:5: the range in "gpu[a:3]" cannot be read; begin and end must both be numbers or letters; {RANGE}',
    ),
    yaml(
        "ranges of the shell, of Slurm, and lists",
        "all:\n  hosts:\n    hgx[01-08]: {}\n    gpu{1..4}: {}\n"
        "    b[1..4]-ib[0-1]: {}\n    c[01,02]: {}\n    c[01-04,06]: {}\n    d[08-01x]: {}\n",
        ':3:5: the range in "hgx[01-08]" cannot be read; write hgx[01:08]',
        ':4:5: "gpu{1..4}" is one host to Ansible, and not a range; write gpu[1:4]',
        ':5:5: the range in "b[1..4]-ib[0-1]" cannot be read; write b[1:4]-ib[0:1]',
        ':6:5: the range in "c[01,02]" cannot be read; write c01, c02, each on a line of its own',
        ':7:5: the range in "c[01-04,06]" cannot be read; write c[01:04], c06, each on a line of its own',
        f':8:5: the range in "d[08-01x]" cannot be read; host range must be begin:end or begin:end:step; {RANGE}',
    ),
    yaml(
        "a host with the name of a group that every inventory has",
        "all:\n  hosts:\n    ungrouped: {}\n",
        ':3:5: a host is called "ungrouped", which is a group of Ansible\'s own: rename the host',
    ),
    yaml(
        "a host with the name of the group of all",
        "all:\n  hosts:\n    gpu01: {}\n    all: {}\n",
        ':4:5: a host is called "all", which is a group of Ansible\'s own: rename the host',
    ),
    yaml(
        "groups in a circle",
        "a:\n  children:\n    b:\n      children:\n        a: {}\n  hosts: {gpu01: {}}\n",
        ":3:5: adding group 'b' as child to 'a' creates a recursive dependency loop",
    ),
]

TEXT = [
    yaml(
        "duplicate keys, all told",
        "all:\n  hosts:\n    gpu01: {}\n    gpu01: {}\n  hosts: {}\n",
        ':4:5: "gpu01" is written twice; the first is in line 3; remove one of them',
        ':5:3: "hosts" is written twice; the first is in line 2; remove one of them',
    ),
    yaml(
        "a duplicate beside a merge key, which is none",
        "all:\n  vars:\n    a: &a {x: 1}\n    b: {<<: *a, x: 2}\n    c: {y: 1, y: 2}\n  hosts: {gpu01: {}}\n",
        ':5:15: "y" is written twice; the first is in line 5; remove one of them',
    ),
    yaml("a tab", "all:\n\thosts: {}\n", ":2:1: a tab is not allowed here; indent with spaces"),
    yaml("an open brace", "all:\n  hosts: {gpu01: {}\n", ":2:10: the { that opens here is not closed; end it with }"),
    yaml(
        "indentation",
        "all:\n  hosts:\n    gpu01: {}\n   gpu02: {}\n",
        ":4:4: this line is indented by 3 spaces, and the block that began in line 2 by 2;"
        " indent it by 2 to belong to that block, or correct the lines between",
    ),
    yaml(
        "indentation below a value that is complete",
        "all:\n  vars:\n    gpuprov:\n      mig: {layout: []}\n        mps: {}\n",
        ":5:9: this line is indented by 8 spaces, and the block that began in line 4 by 6;"
        " indent it by 6 to belong to that block, or correct the lines between",
    ),
    yaml(
        "no space after a colon",
        "all:\n  hosts:\n    gpu01:\n      ansible_password:secret\n      ansible_user: admin\n",
        ':4:7: there is no space after the colon; write a space after "ansible_password:"',
    ),
    yaml(
        "a word between keys",
        "all:\n  hosts:\n    gpu01\n    gpu02: {}\n",
        ':3:5: this line is not `key: value`; write "gpu01:" if it is a key',
    ),
    yaml(
        "no space after a colon, further down",
        "all:\n  hosts:\n    gpu01:\n      ansible_host: 192.0.2.1\n      ansible_user:admin\n      ansible_become: "
        "true\n",
        ':5:7: there is no space after the colon; write a space after "ansible_user:"',
    ),
    yaml(
        "a second value in a line",
        "all:\n  vars:\n    a: [b] c\n",
        ":3:12: not valid YAML: while parsing a block mapping did not find expected key",
    ),
    yaml(
        "an unquoted template",
        "all:\n  vars:\n    a: {{ b }}\n",
        ':3:8: a template that is not quoted; write it as key: "{{ name }}"',
    ),
    yaml(
        "a colon",
        "all:\n  vars:\n    a: b: c\n",
        ":3:9: a colon inside a value that is not quoted; quote the whole value",
    ),
    yaml(
        "a quote",
        'all:\n  vars:\n    a: "b" c\n',
        ":3:8: a quote that does not end where the value ends; quote the whole value once",
    ),
    yaml(
        "a quote that does not close",
        'all:\n  vars:\n    gpuprov:\n      nvidia_driver:\n        version: "580\n      mig:\n        mode: '
        "disabled\n  hosts: {a: {}}\n",
        ':5:18: the quote that opens here is not closed in this line; end the value of version with "',
    ),
    yaml(
        "a quote that does not close before another, and an apostrophe",
        "all:\n  vars:\n    note: it's # 'so\n    a: {b: 'c}\n    d: 'e'\n",
        ":4:12: the quote that opens here is not closed in this line; end the value of b with '",
    ),
    yaml(
        "a text of two lines, which is not a mistake, before one",
        'all:\n  vars:\n    a: "b\n      c"\n    d: [e\n',
        ':3:8: the quote that opens here is not closed in this line; end the value of a with "',
    ),
    yaml(
        "an alias",
        "all:\n  vars:\n    a: *nope\n",
        ":3:8: the file refers to an anchor (&NAME) that is not there; quote a text that begins with *",
    ),
    yaml(
        "a tag",
        "all:\n  vars:\n    a: !nope b\n",
        ":3:8: the tag !nope is none that Ansible knows; quote a text that begins with !",
    ),
    yaml(
        "two documents",
        "---\nall: {}\n---\nall: {}\n",
        ":3:1: a second document begins here, and an inventory is one; "
        "take the --- out and put its groups into the first, or make it a file of its own",
    ),
    yaml("bytes", b"all:\n  hosts:\n    gpu\xff: {}\n", ": the file is not UTF-8 text; save it as UTF-8"),
    yaml("an alias of itself", spec("&a {x: *a}"), ":3:21: *a refers to itself"),
    Bad(
        "ini host",
        {"hosts": "[a]\ngpu01 x\n"},
        ['hosts:2:7: "x" is not a variable of a host; allowed: name=value'],
        "hosts",
    ),
    Bad(
        "ini range",
        {"hosts": "[a]\nhgx[01-08] ansible_user=x\n"},
        ['hosts:2:1: the range in "hgx[01-08]" cannot be read; write hgx[01:08]'],
        "hosts",
    ),
    Bad(
        "ini section that is not closed",
        {"hosts": "[gpu\ngpu01\n"},
        ["hosts:1:1: the [ that opens a section here is not closed; write [gpu]"],
        "hosts",
    ),
    Bad(
        "ini section",
        {"a.ini": "[a:b]\ngpu01\n"},
        [
            'a.ini:1:1: a section of the kind "b" is none that Ansible knows; allowed: [NAME], [NAME:vars], '
            "[NAME:children]"
        ],
        "a.ini",
    ),
    Bad(
        "ini child",
        {"hosts": "[all:children]\ntraining\n"},
        ["hosts:1:1: section [all:children] includes undefined group 'training'"],
        "hosts",
    ),
    Bad("ini vars", {"hosts": "[a]\ngpu01\n[a:vars]\nx\n"}, ["hosts:4:1: expected key=value, got: x"], "hosts"),
    Bad(
        "toml",
        {"hosts.toml": "[a\n"},
        ["hosts.toml:1:3: not valid TOML: Expected ']' at the end of a table declaration"],
        "hosts.toml",
    ),
]
