"""The README of a rendered project: its contents, the commands to run, and what is left out."""

from collections.abc import Sequence

from gpuprov import __version__
from gpuprov.core.sanitize import cleaned
from gpuprov.inventory.names import fold_names

TEXT = """# An Ansible project, rendered by gpuprov {version}

It brings {hosts} to their specs. Change the inventory it was rendered from, and render it again: what is changed here is written over.

## Run it

It needs ansible-core, and gpuprov in the same Python environment.

    ansible-playbook site.yml --check --diff     # what would change; changes nothing
    ansible-playbook site.yml                    # make it so; every host is verified at the end
    ansible-playbook site.yml --limit NAME       # some hosts

A reboot happens only where a spec permits it (`reboot: if-needed`), and once at most. Afterwards, `gpuprov verify` says whether the
hosts match their specs; give it the inventory that this was rendered from.

## What is where

* `inventory.yml`: the hosts and how they are reached. `host_vars/`: the merged spec of each host, resolved.
* `site.yml`: the acts in their order (preflight, install, configure, reboot, service, verify), in `acts/`.
* `roles/`, `library/`, `action_plugins/`, `module_utils/`: what they run.
{secrets}"""
LEFT_OUT = """
## Secrets

These were left out. Give them to ansible-playbook in another way, such as `--ask-become-pass`, or a vault:

{names}
"""


def text(hosts: Sequence[str], left_out: Sequence[str]) -> str:
    """Return the README of a project for these hosts. `left_out`: the connection variables that it does not have."""
    names = "\n".join(f"* `{cleaned(name)}`" for name in left_out)
    return TEXT.format(
        version=__version__, hosts=fold_names(list(hosts)), secrets=LEFT_OUT.format(names=names) if names else ""
    )
