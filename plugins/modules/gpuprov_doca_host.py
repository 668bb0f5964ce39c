#!/usr/bin/python
"""Have the package source that NVIDIA's doca-host package brings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_doca_host
short_description: Install a doca-host package that lies on the host, and fetch the lists of the package source that it brings
description:
  - The package's checksum was compared when it came (M(gpuprov_fetch)). A package with another name is refused before it is installed.
  - A file beside the package says that it was installed.
  - In check mode it is said.
author: gpuprov
options:
  package:
    description: The package on the host, a deb or an rpm. Where it is empty, nothing is to be done.
    type: str
    default: ""
  named:
    description: What the spec calls it, for messages.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Have DOCA's package source
  gpuprov_doca_host:
    package: /var/lib/gpuprov/doca-host/0f2c.deb
    named: https://www.mellanox.com/downloads/DOCA/doca-host_3.2.1_amd64.deb
"""

RETURN = r"""
msg:
  description: What was done, or would be.
  type: str
  returned: changed
"""

from ansible.module_utils.gpuprov_onhost import doca_host
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule


def main() -> None:
    options = {"package": {"type": "str", "default": ""}, "named": {"type": "str", "default": ""}}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
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


if __name__ == "__main__":
    main()
