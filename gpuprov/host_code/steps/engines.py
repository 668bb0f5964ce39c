"""Run one of the steps with which gpuprov/play/engines.py sets up NVIDIA's runtime in container engines.

The files as they were before the last change are kept in /var/lib/gpuprov/container_toolkit/ENGINE.

step: The step's name (engine_steps.STEPS).
given: The step's arguments.

Returns:
answer: The step's result.
"""

from __future__ import annotations

from .. import files
from ..engine_steps import STEPS
from ..failed import Failed
from ..module import AnsibleModule

OPTIONS = {"step": {"type": "str", "required": True}, "given": {"type": "dict", "default": {}}}


def run(module: AnsibleModule) -> None:
    step = STEPS[module.params["step"]]
    try:
        module.exit_json(changed=True, answer=step(**module.params["given"]))
    except Failed as refused:
        fix = (
            "repair it, or take the engine out of container_toolkit.runtimes, the user out of "
            "container_toolkit.rootless"
        )
        module.fail_json(msg=f"{refused}. Fix: {fix}")
    except OSError as error:
        module.fail_json(msg=files.explain(error))
