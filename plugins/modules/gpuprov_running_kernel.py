#!/usr/bin/python
"""The running kernel brought into the state that the next boot would have."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_running_kernel
short_description: Modules, sysctls, limits of services and hugepages of the running kernel
description:
  - Loads modules that are missing, sets sysctls that differ from their file, has systemd read its default limits anew, and has memory
    put together for hugepages that the kernel could not make.
author: gpuprov
options:
  modules:
    description: Modules that should be loaded.
    type: list
    elements: str
    default: []
  sysctl:
    description: Values by name; gpuprov's file in /etc/sysctl.d has them already.
    type: dict
    default: {}
  limits:
    description: systemd's settings, such as DefaultLimitNOFILE, as C(systemctl show) prints them.
    type: dict
    default: {}
  hugepages:
    description: How many pages of the default size there should be at least; 0 leaves them alone.
    type: int
    default: 0
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Have ib_umad loaded, and room for many watches
  gpuprov_running_kernel:
    modules: [ib_umad]
    sysctl: {fs.inotify.max_user_watches: "1048576"}
"""

RETURN = r"""
set:
  description: What was not as wanted, a line each.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.gpuprov_onhost import running_kernel as kernel
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule


def main() -> None:
    options = {
        "modules": {"type": "list", "elements": "str", "default": []},
        "sysctl": {"type": "dict", "default": {}},
        "limits": {"type": "dict", "default": {}},
        "hugepages": {"type": "int", "default": 0},
    }
    module = AnsibleModule(options, supports_check_mode=True)
    wanted, now = module.params, not module.check_mode
    before, after = [], []
    try:
        missing = kernel.absent(wanted["modules"])
        for name in missing:
            before.append(f"{name}: not loaded")
            after.append(f"{name}: loaded")
            if now:
                kernel.load(name)
        sysctls = {name: str(value) for name, value in wanted["sysctl"].items()}
        differing = kernel.differing(sysctls)
        before += [f"{name} = {value}" for name, value in differing.items()]
        after += [f"{name} = {sysctls[name]}" for name in differing]
        if differing and now:
            kernel.set_sysctls()
        limits = kernel.limits_differing({name: str(value) for name, value in wanted["limits"].items()})
        before += [f"{name}={value}" for name, value in limits.items()]
        after += [f"{name}={wanted['limits'][name]}" for name in limits]
        if limits and now:
            kernel.reexec()
        pages = kernel.hugepages() if wanted["hugepages"] else 0
        if pages < wanted["hugepages"]:
            before.append(f"hugepages: {int(pages)}")
            after.append(f"hugepages: {int(wanted['hugepages'])}")
            if now and (pages := kernel.more_hugepages(wanted["hugepages"])) < wanted["hugepages"]:
                raise kernel.Failed(
                    f"kernel.hugepages: {pages} of {wanted['hugepages']} pages are there, memory has no room for more."
                    " Fix: reboot the host (sysctl sets them early in a boot), or fewer"
                )
    except kernel.Failed as error:
        module.fail_json(msg=str(error))
    diff = {"before": "".join(f"{line}\n" for line in before), "after": "".join(f"{line}\n" for line in after)}
    module.exit_json(changed=bool(after), set=after, diff=diff)


if __name__ == "__main__":
    main()
