"""Put a file with a known SHA-256 on the host, fetched from a URL or copied from the machine that runs Ansible.

Nothing else is done with the file. It is written to a temporary file and moved into place only when it is complete
and its checksum matches.
A file that already has this checksum is kept, and nothing is fetched.
Check mode reports that it would be fetched.

of: The spec field that names the file, for messages.
url: URL that the host fetches, with its own proxy settings. Either this or `file`.
file: File on the machine that runs Ansible. Its checksum is verified there, before it is copied to the host.
came: Path of the copied file on the host; set by the action plugin.
path: Destination on the host.
sha256: The file's checksum.
most: Largest permitted size in bytes.
public: True if users other than root may read the file.
fix: The fix if the checksum differs.
unreachable: The fix if nothing can be fetched.

Returns:
missing: True if the file must first be copied from the machine that runs Ansible.
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
    "fix": {
        "type": "str",
        "default": "the right file, or the sha256 that sha256sum says of it, compared with what its publisher says",
    },
    "unreachable": {"type": "str", "default": "correct the url, the network, or the proxy of the host"},
}
SECONDS = 60


def run(module: AnsibleModule) -> None:
    params = module.params
    named = params["url"] or params["file"]
    if bool(params["url"]) == bool(params["file"]):
        module.fail_json(msg=f"{params['of']}: one of url and file names it")
    target = fetched.Wanted(
        params["path"], params["sha256"].lower(), params["most"], 0o644 if params["public"] else 0o600
    )
    try:
        if files.compute_digest(target.path) == target.sha256:
            module.exit_json(changed=False, missing=False)
        if module.check_mode:
            message = f"would fetch {named}, and compare its checksum, before anything else is changed"
            module.exit_json(changed=True, missing=False, msg=message)
        if params["file"] and not params["came"]:
            module.exit_json(changed=False, missing=True)
        source = params["came"] or fetched.find_in_bundle(target.sha256)
        if source and not params["came"] and not os.path.exists(source):
            raise fetched.Refused("it is not in the bundle, and nothing else may be asked for it")
        if source:
            fetched.put_file(target, source)
        else:
            fetched.put_answer(target, lambda: open_url(params["url"], timeout=SECONDS))
    except fetched.OtherDigest as error:
        module.fail_json(msg=f"{params['of']}: {named}: {error}; nothing was changed. Fix: {params['fix']}")
    except (fetched.Refused, OSError, ValueError) as error:
        room = f"room on the host for {target.path}; or " if getattr(error, "errno", 0) == errno.ENOSPC else ""
        message = f"{params['of']}: {named} could not be fetched: {error}; nothing was changed."
        problem = f"{message} Fix: {room}{params['unreachable']}"
        module.fail_json(msg=problem)
    module.exit_json(changed=True, missing=False)
