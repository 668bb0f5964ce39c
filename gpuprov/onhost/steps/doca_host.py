"""Install a doca-host package that lies on the host, and fetch the lists of the package source that it brings.

The package's checksum was compared when it came (step fetch). A package with another name is refused before it
is installed.
A file beside the package says that it was installed.
In check mode it is said.

package: The package on the host, a deb or an rpm. Where it is empty, nothing is to be done.
named: What the spec calls it, for messages.

Returns:
msg: What was done, or would be. (changed)
"""

from __future__ import annotations

from .. import doca_host
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
    except (doca_host.Refused, OSError) as error:
        way = "the doca-host package of this distribution; what dpkg, rpm, apt or dnf complain of, on the host"
        module.fail_json(msg=f"rdma.ofed: {named}: {error}. Fix: {way}")
    module.exit_json(changed=True, msg=f"added the package source of {named}")
