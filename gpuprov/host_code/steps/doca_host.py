"""Install a doca-host package that is already on the host, and update the lists of the package source it adds.

The step `fetch` has verified the package's checksum. A package of another name is refused before it is installed.
A file beside the package records that it was installed.
Check mode only reports the change.

package: Path of the deb or rpm on the host. If empty, nothing is done.
named: The package's name in the spec, for messages.

Returns:
msg: The change made, or in check mode pending. (changed)
"""

from __future__ import annotations

from .. import doca_host
from ..failed import Failed
from ..module import AnsibleModule

OPTIONS = {"package": {"type": "str", "default": ""}, "named": {"type": "str", "default": ""}}


def run(module: AnsibleModule) -> None:
    package, named = module.params["package"], module.params["named"]
    if not package:
        module.exit_json(changed=False)
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would add the package source of {named}")
    try:
        doca_host.add(package, named)
    except (Failed, OSError) as error:
        fix = "the doca-host package of this distribution; what dpkg, rpm, apt or dnf complain of, on the host"
        module.fail_json(msg=f"rdma.ofed: {named}: {error}. Fix: {fix}")
    module.exit_json(changed=True, msg=f"added the package source of {named}")
