"""Judge NVIDIA's .run file, or have its installer run.

`judged` refuses a file that its own check finds damaged, or that holds another driver, and takes it away.
Nothing is changed otherwise. step fetch has compared its checksum.
`installed` runs the installer. The file stays.
Check mode says what would be done.

state: What to do.
path: Where the file is on the host.
version: The driver's version.
of: Where it comes from, for messages (`judged`).
flavour: Of the modules, for messages (`installed`).
options: The installer's (`installed`).

Returns:
msg: What would be done. (check mode)
"""

from __future__ import annotations

from ..driver import runfile
from ..driver.dkms import Failed
from ..module import AnsibleModule

WORDS = {key: {"type": "str", "default": ""} for key in ("of", "flavour")}
OPTIONS = {
    "state": {"type": "str", "choices": ["judged", "installed"], "required": True},
    "path": {"type": "path", "required": True},
    "version": {"type": "str", "required": True},
    "options": {"type": "list", "elements": "str", "default": []},
    **WORDS,
}


def run(module: AnsibleModule) -> None:
    asked = module.params
    judged = asked["state"] == "judged"
    if module.check_mode:
        module.exit_json(
            changed=not judged, msg="" if judged else f"{asked['version']} ({asked['flavour']}) of a runfile"
        )
    try:
        if judged:
            runfile.judge(asked["path"], asked["of"], asked["version"])
        else:
            runfile.install(asked["path"], asked["version"], asked["options"])
    except Failed as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=not judged)
