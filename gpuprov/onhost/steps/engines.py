"""Take one step of those by which gpuprov/play/engines.py brings NVIDIA's runtime into container engines.

Files from before the last change stay in /var/lib/gpuprov/container_toolkit/ENGINE.

step: Its name (engine_steps.STEPS).
given: What it is done with.

Returns:
answer: What it found.
"""

from __future__ import annotations

from ..engine_steps import STEPS
from ..module import AnsibleModule
from ..rootless import Refused

OPTIONS = {"step": {"type": "str", "required": True}, "given": {"type": "dict", "default": {}}}


def run(module: AnsibleModule) -> None:
    step = STEPS[module.params["step"]]
    try:
        module.exit_json(changed=True, answer=step(**module.params["given"]))
    except Refused as refused:
        way_out = "repair it, or take the engine out of container_toolkit.runtimes, the user out of container_toolkit.rootless"
        module.fail_json(msg=f"{refused}. Fix: {way_out}")
    except OSError as error:
        module.fail_json(msg=f"{error}. Fix: see the file system of the host")
