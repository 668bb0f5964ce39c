"""Have a file with a known SHA-256 on the host, fetched from an address or brought along from beside the inventory.

Nothing else is done with the file. It is written aside and put in its place only when all of it has come and
has the checksum.
A file that is there already with this checksum stays, and nothing is fetched.
In check mode it is said that it would come.

of: The field that names it, for messages.
url: Its address, which the host fetches by its own proxy settings. Either this or `file`.
file: Or a file of the machine that runs Ansible. Its checksum is compared there, before it is brought to the
    host.
came: Where the file of that machine lies on the host; set by the action of this name.
path: Where it should be on the host.
sha256: Its checksum.
most: Bytes that it may have at most.
public: Whether others than root may read it.
hint: What to do where another file comes.
unreachable: What to do where nothing comes.

Returns:
missing: Whether the file of the machine that runs Ansible has to be brought along first.
"""

from __future__ import annotations

import errno
import os

from ansible.module_utils.urls import open_url

from .. import fetched, files
from ..module import AnsibleModule

OPTIONS = {
    "of": {"type": "str", "required": True},
    "url": {"type": "str", "default": ""},
    "file": {"type": "str", "default": ""},
    "came": {"type": "path"},
    "path": {"type": "path", "required": True},
    "sha256": {"type": "str", "required": True},
    "most": {"type": "int", "default": 1 << 32},
    "public": {"type": "bool", "default": False},
    "hint": {
        "type": "str",
        "default": "the right file, or the sha256 that sha256sum says of it, compared with what its publisher says",
    },
    "unreachable": {"type": "str", "default": "correct the url, the network, or the proxy of the host"},
}
SECONDS = 60


def run(module: AnsibleModule) -> None:
    asked = module.params
    named = asked["url"] or asked["file"]
    if bool(asked["url"]) == bool(asked["file"]):
        module.fail_json(msg=f"{asked['of']}: one of url and file names it")
    wanted = fetched.Wanted(asked["path"], asked["sha256"].lower(), asked["most"], 0o644 if asked["public"] else 0o600)
    try:
        if files.digest(wanted.path) == wanted.sha256:
            module.exit_json(changed=False, missing=False)
        if module.check_mode:
            told = f"would fetch {named}, and compare its checksum, before anything else is changed"
            module.exit_json(changed=True, missing=False, msg=told)
        if asked["file"] and not asked["came"]:
            module.exit_json(changed=False, missing=True)
        here = asked["came"] or fetched.of_bundle(wanted.sha256)
        if here and not asked["came"] and not os.path.exists(here):
            raise fetched.Refused("it is not in the bundle, and nothing else may be asked for it")
        if here:
            fetched.put_file(wanted, here)
        else:
            fetched.put_answer(wanted, lambda: open_url(asked["url"], timeout=SECONDS))
    except fetched.OtherDigest as error:
        module.fail_json(msg=f"{asked['of']}: {named}: {error}; nothing was changed. Fix: {asked['hint']}")
    except (fetched.Refused, OSError, ValueError) as error:
        hint = f"room on the host for {wanted.path}; or " if getattr(error, "errno", 0) == errno.ENOSPC else ""
        said = f"{asked['of']}: {named} did not come: {error}; nothing was changed. Fix: {hint}{asked['unreachable']}"
        module.fail_json(msg=said)
    module.exit_json(changed=True, missing=False)
