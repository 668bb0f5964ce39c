"""Check NVIDIA's .run file, run its installer, or remove its driver.

`judged` refuses and deletes a file that fails its own integrity check or contains another driver. Nothing else is
changed. The step `fetch` has verified its checksum.
`installed` runs the installer and keeps the file.
`removed` runs the uninstaller that the installer left on the host.
Check mode reports what would be done.

state: The action.
path: Path of the file on the host, or of the uninstaller (`removed`).
version: The driver's version.
of: The origin of the file, for messages (`judged`).
flavour: The flavour of the modules, for messages (`installed`).
options: Options for the installer (`installed`).

Returns:
msg: The change that would be made. (check mode)
"""

from __future__ import annotations

from ..driver import runfile
from ..module import AnsibleModule

WORDS = {key: {"type": "str", "default": ""} for key in ("of", "flavour")}
OPTIONS = {
    "state": {"type": "str", "choices": ["judged", "installed", "removed"], "required": True},
    "path": {"type": "path", "required": True},
    "version": {"type": "str", "required": True},
    "options": {"type": "list", "elements": "str", "default": []},
    **WORDS,
}


def run(module: AnsibleModule) -> None:
    params = module.params
    check_only, removes = params["state"] == "judged", params["state"] == "removed"
    if module.check_mode:
        module.exit_json(
            changed=not check_only,
            msg="" if check_only or removes else f"{params['version']} ({params['flavour']}) of a runfile",
        )
    if removes:
        runfile.remove(params["path"], params["version"])
    elif check_only:
        runfile.judge(params["path"], params["of"], params["version"])
    else:
        runfile.install(params["path"], params["version"], params["options"])
    module.exit_json(changed=not check_only)
