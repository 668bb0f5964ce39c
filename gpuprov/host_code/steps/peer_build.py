"""Rebuild a kernel module for peer memory against the installed ib_core.

The module's DKMS package is rebuilt in a tree of its own and put in place only if the result has peer memory. A build
that is interrupted or fails leaves the installed modules untouched.
Check mode only reports the change.

module: The module.
kernels: Kernels to build for.
why: The reason for the build, in words.

Returns:
msg: The change made, or in check mode pending. (changed)
"""

from __future__ import annotations

from .. import peer_build
from ..failed import Failed
from ..module import AnsibleModule

OPTIONS = {
    "module": {"type": "str", "choices": ["nvidia_peermem", "nv_peer_mem"], "required": True},
    "kernels": {"type": "list", "elements": "str", "required": True},
    "why": {"type": "str", "required": True},
}


def run(module: AnsibleModule) -> None:
    name, kernels, why = (module.params[key] for key in ("module", "kernels", "why"))
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would build {name} again for {why}")
    try:
        peer_build.rebuild_package(name, kernels)
    except (Failed, OSError) as error:
        message = f"{name} could not be built again, the modules that were there are untouched ({why}). {error}"
        module.fail_json(
            msg=f"{message}. Fix: correct what the build says; or method dmabuf, which needs no such module"
        )
    module.exit_json(changed=True, msg=f"built {name} again for {why}")
