"""Values and sources that cannot be used; see `bad.py` for the form of a row."""

from __future__ import annotations

from tests.inventory.bad import MAPPING, NO_PASSWORD, WRONG_PASSWORD, Bad, limited, spec, yaml
from tests.inventory.files import GOOD, indented, locked

VALUES = [
    yaml("gpuprov as list", spec("[nvidia_driver]"), f":3:14: gpuprov is a list; {MAPPING}"),
    yaml("gpuprov as text", spec("yes please"), f':3:14: gpuprov is "yes please"; {MAPPING}'),
    yaml("gpuprov empty", spec(""), f":3:5: gpuprov is empty; {MAPPING}"),
    yaml("gpuprov false", spec("false"), f":3:5: gpuprov is false; {MAPPING}"),
    yaml(
        "a bracket left open",
        spec("\n      mig: [a\n      mps: {}"),
        ":4:12: the [ that opens here is not closed; end it with ]",
    ),
    yaml(
        "no comma",
        spec("{mig: false mps: {}}"),
        ':3:29: a "," or "}" is missing before this; separate what is inside {} by ","',
    ),
    yaml(
        "a range that counts down",
        "all: {hosts: {'gpu[08:01]': {gpuprov: {}}}}\n",
        ':1:15: "gpu[08:01]" is a range that counts down; allowed: gpu[01:08]',
    ),
    Bad(
        "gpuprov in files",
        {"inventory.yaml": GOOD, "group_vars/all.yml": "gpuprov: 5\n", "host_vars/gpu01.yml": "gpuprov:\n  - a\n"},
        [f"group_vars/all.yml:1:10: gpuprov is 5; {MAPPING}", f"host_vars/gpu01.yml:2:3: gpuprov is a list; {MAPPING}"],
    ),
    Bad(
        "gpuprov in ini",
        {"hosts": "[a]\ngpu01\n[a:vars]\ngpuprov=on\n"},
        [f'hosts:4:1: gpuprov is "on"; {MAPPING}'],
        "hosts",
    ),
    Bad(
        "files of variables",
        {"inventory.yaml": GOOD, "group_vars/all.yml": "- a\n", "host_vars/gpu01.yml": "b\n"},
        [
            "group_vars/all.yml:1:1: a file of variables is a list; allowed: a mapping of variables",
            'host_vars/gpu01.yml:1:1: a file of variables is "b"; allowed: a mapping of variables',
        ],
    ),
    Bad(
        "broken files of variables, all told",
        {
            "inventory.yaml": GOOD,
            "group_vars/all/a.yml": "a: {\n",
            "group_vars/all/b.yml": "\tb: 1\n",
            "host_vars/gpu02.yml": "x: 1\nx: 2\n",
        },
        [
            "group_vars/all/a.yml:2:1: not valid YAML: while parsing a flow node did not find expected node content",
            "group_vars/all/b.yml:1:1: a tab is not allowed here; indent with spaces",
            'host_vars/gpu02.yml:2:1: "x" is written twice; the first is in line 1; remove one of them',
        ],
    ),
    yaml(
        "undefined variables",
        'all:\n  vars:\n    gpuprov:\n      nvidia_driver: {version: "{{ site_driver }}"}\n'
        '  hosts:\n    gpu01: {ansible_host: "{{ addr }}"}\n    gpu02: {}\n',
        ':4:32: nvidia_driver.version uses the variable "site_driver", which is not defined;'
        ' define it, or give a default: "{{ site_driver | default(...) }}"',
        ':6:27: ansible_host uses the variable "addr", which is not defined;'
        ' define it, or give a default: "{{ addr | default(...) }}"',
    ),
    yaml(
        "an undefined attribute",
        spec('{nvidia_driver: {version: "{{ groups.nope }}"}}'),
        ":3:40: nvidia_driver.version cannot be resolved: object of type 'dict' has no attribute 'nope';"
        " define it, or give a default",
    ),
    yaml(
        "template syntax",
        spec('{nvidia_driver: {version: "{{ a"}}'),
        ":3:40: nvidia_driver.version cannot be resolved: unexpected end of template, expected 'end of print "
        "statement'",
    ),
    yaml(
        "an unknown filter",
        spec('{kernel: {blacklist: ["{{ 1 | nope }}"]}}'),
        ":3:36: kernel.blacklist[0] cannot be resolved: no filter named 'nope'",
    ),
    yaml(
        "templates in a circle",
        'all:\n  vars:\n    a: "{{ b }}"\n    b: "{{ a }}"\n    gpuprov: {reboot: "{{ a }}"}\n  hosts: {gpu01: {}}\n',
        ":5:23: reboot cannot be resolved: its variables refer to each other in a circle",
    ),
    yaml(
        "a template that gives a list",
        spec('"{{ groups.all }}"'),
        f":3:14: gpuprov is a template that gives a list; {MAPPING}",
    ),
    Bad(
        "vault without password",
        {"inventory.yaml": GOOD, "group_vars/all.yml": locked("a: 1\n")},
        [f"group_vars/all.yml: the file {NO_PASSWORD}"],
    ),
    Bad("vaulted inventory", {"inventory.yaml": locked(GOOD)}, [f"inventory.yaml: the file {NO_PASSWORD}"]),
    Bad(
        "vault with the wrong password",
        {"inventory.yaml": GOOD, "group_vars/all.yml": locked("a: 1\n"), "password": "wrong\n"},
        [f"group_vars/all.yml: the file {WRONG_PASSWORD}"],
        arguments={"vault_password_files": ["password"]},
    ),
    Bad(
        "damaged vault",
        {"inventory.yaml": GOOD, "group_vars/all.yml": "$ANSIBLE_VAULT;1.1;AES256\n3131\n", "password": "x\n"},
        ["group_vars/all.yml: the file is damaged: it begins like an ansible-vault text"],
        arguments={"vault_password_files": ["password"]},
    ),
    Bad(
        "no vault text behind !vault",
        {"inventory.yaml": "all:\n  hosts:\n    gpu01:\n      ansible_password: !vault plain\n"},
        [
            "inventory.yaml:4:25: ansible_password is marked !vault, and what follows is not an ansible-vault text; "
            "ansible-vault encrypt_string makes one; leave !vault out of a plain value"
        ],
    ),
    Bad(
        "inline vault",
        {"inventory.yaml": "all:\n  hosts:\n    gpu01:\n      ansible_password: !vault |\n" + indented(locked("s"), 8)},
        [f"inventory.yaml:4:25: ansible_password {NO_PASSWORD}"],
    ),
    Bad(
        "inline vault in the spec",
        {
            "inventory.yaml": "all:\n  hosts:\n    gpu01:\n      gpuprov:\n        a: !vault |\n"
            + indented(locked("s"), 10),
            "password": "wrong\n",
        },
        [f"inventory.yaml:5:12: a {WRONG_PASSWORD}"],
        arguments={"vault_password_files": ["password"]},
    ),
    Bad(
        "password files",
        {"inventory.yaml": GOOD, "empty": ""},
        ["empty: the vault password file is empty", "nope: no such vault password file"],
        arguments={"vault_password_files": ["nope", "empty"]},
    ),
    Bad(
        "spec twice in a section",
        {"hosts.ini": "[gpus]\ngpu1\n[gpus:vars]\ngpuprov={'nouveau': {}}\nx=1\n gpuprov = {'persistence': {}}\n"},
        ['hosts.ini:6:1: "gpuprov" is written twice in this section; the first is in line 4; remove one of them'],
        source="hosts.ini",
    ),
    Bad(
        "password files without an end",
        {"inventory.yaml": GOOD, "large": "x" * 1_100_000},
        [
            "/dev/zero: this is a device; allowed for a vault password: a file, a program, or a pipe",
            "large: larger than 1024 KiB: this is not a vault password",
        ],
        arguments={"vault_password_files": ["/dev/zero", "large"]},
    ),
]

SOURCES = [
    Bad(
        "misspelled file",
        {"inventori.yaml": GOOD},
        ['inventory.yaml: no such inventory; did you mean "inventori.yaml"?'],
    ),
    Bad("a host", {}, ["gpu01: no such inventory; to name a host of an inventory: --limit gpu01"], "gpu01"),
    Bad("no folder", {}, ["prod/hosts: no such inventory; there is no folder prod"], "prod/hosts"),
    Bad("empty folder", {"inv/.keep": ""}, ["inv: no file in this folder is an inventory"], "inv"),
    Bad(
        "a folder with two broken files",
        {"inv/a.yaml": "a: {\n", "inv/b.yaml": "- x\n", "inv/c.yaml": GOOD},
        [
            "inv/a.yaml:2:1: not valid YAML: while parsing a flow node did not find expected node content",
            "inv/b.yaml:1:1: the inventory is a list; allowed: a mapping of groups",
        ],
        "inv",
    ),
    Bad(
        "a script that fails and says a password",
        {"inv.sh": "#!/bin/sh\necho Traceback: password=hunter2secret >&2\nexit 3\n"},
        ["inv.sh: inventory script returned non-zero exit code 3; it said: Traceback: password=***"],
        "inv.sh",
    ),
    Bad(
        "a script that prints text",
        {"inv.sh": "#!/bin/sh\necho hello\n"},
        ["inv.sh: the inventory script printed something that is not inventory JSON"],
        "inv.sh",
    ),
    Bad(
        "a script that cannot run",
        {"inv.sh": "#!/no/such/sh\n"},
        ['inv.sh: the inventory script cannot be run; check its "#!" line'],
        "inv.sh",
    ),
    Bad(
        "an unknown plugin",
        {"inventory.yaml": "plugin: no.such.plugin\n"},
        ['inventory.yaml: there is no inventory plugin "no.such.plugin"; install its collection'],
    ),
    limited("gpu03", '--limit: no host or group matches "gpu03"; did you mean "gpu02"?'),
    limited(
        "all:!gpu3:&trainin",
        '--limit: no host or group matches "gpu3"; did you mean "gpu02"?',
        '--limit: no host or group matches "trainin"; did you mean "training"?',
    ),
    limited("rack7", '--limit: no host or group matches "rack7"; groups: training'),
    limited("localhost", '--limit: no host or group matches "localhost"; groups: training'),
    limited("@hosts.retry", "--limit: hosts.retry cannot be read: No such file or directory"),
    Bad(
        "variables from a file that is not there",
        {"inventory.yaml": GOOD},
        ["more.yaml: cannot be read: No such file or directory"],
        arguments={"extra_vars": ["@more.yaml"]},
    ),
    limited("gpu[01-08]", '--limit: no host or group matches "gpu[01-08]"; write gpu[01:08]'),
    limited("rack{1..4}", '--limit: no host or group matches "rack{1..4}"; write rack[1:4]'),
    limited("gpu01:!gpu01", '--limit "gpu01:!gpu01" leaves no host; leave it out to mean all hosts'),
    limited("", "--limit is empty; leave it out to mean all hosts"),
    limited("~gpu(", '--limit: "~gpu(" is not a regular expression: missing ), unterminated subpattern at position 3'),
    limited("training[5]", '--limit: "training[5]" asks for item 5 of 2; allowed: 0 to 1'),
]
