#!/usr/bin/python
"""Kernel modules that one host builds for others."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_prebuilt
short_description: Pack the driver's modules for other hosts, or work out what of it a host takes
description:
  - V(packed), on the build host, makes a Debian package of the modules that DKMS has installed, in the place of the DKMS package, and
    keeps it on the machine that runs Ansible. One with the same modules that is kept there already is not made again.
  - V(judged) refuses what the build host has or is about to have where that is not for this host. It changes nothing.
  - V(brought) also refuses where the build host has given nothing out in this run.
  - Check mode packs nothing, and refuses nothing for what the build host is only about to have.
author: gpuprov
options:
  state:
    description: What to do.
    type: str
    choices: [packed, judged, brought]
    required: true
  driver:
    description: What C(gpuprov_judge) has worked out for nvidia_driver on this host.
    type: dict
    required: true
  builder:
    description: The build host.
    type: str
    required: true
  platform:
    description: The host's distribution and version, by which packages are told apart.
    type: str
    required: true
  sums:
    description: Those of the package that is kept; set by the action of this name.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Pack the modules for other hosts
  gpuprov_prebuilt:
    state: packed
    driver: "{{ gpuprov_judged.desired.nvidia_driver }}"
    builder: "{{ nvidia_driver_build_host }}"
    platform: "{{ host_platform }}"
  register: nvidia_driver_given
"""

RETURN = r"""
given:
  description: Whether the package is there for other hosts.
  type: bool
  returned: state is packed
wanted:
  description: Whether the package has to be installed.
  type: bool
  returned: state is judged or brought
awaited:
  description: Whether the build host takes part in this run, and packs before the package is brought.
  type: bool
  returned: state is judged or brought
package:
  description: Where it is on the machine that runs Ansible; RV(sha256) is its checksum, RV(place) where it goes on the host.
  type: str
  returned: state is judged or brought
record:
  description: The description that is kept on the host, its text by its path.
  type: dict
  returned: state is judged or brought
install:
  description: What the package manager is asked for, the set and the package.
  type: list
  elements: str
  returned: state is judged or brought
stop:
  description: Whether what holds the GPUs is stopped for it.
  type: bool
  returned: state is judged or brought
try_install:
  description: What is installed in the trial of the transaction; RV(try_remove) is what is removed.
  type: list
  elements: str
  returned: state is judged or brought
"""

from ansible.module_utils.gpuprov_onhost.driver import packing
from ansible.module_utils.gpuprov_onhost.driver.dkms import Failed
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

SPEC = {
    "state": {"type": "str", "choices": ["packed", "judged", "brought"], "required": True},
    "driver": {"type": "dict", "required": True},
    "builder": {"type": "str", "required": True},
    "platform": {"type": "str", "required": True},
    "sums": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(SPEC, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(changed=False)
    try:
        packed = packing.pack(module.params["driver"], module.params["sums"])
    except Failed as error:
        module.fail_json(msg=f"nvidia_driver.build_host: {error}. Fix: correct what it reports, and apply again")
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}. Fix: see the file system of the host")
    module.exit_json(changed=packed)


if __name__ == "__main__":
    main()
