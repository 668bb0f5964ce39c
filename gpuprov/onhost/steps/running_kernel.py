"""Modules, sysctls, limits of services and hugepages of the running kernel.

Loads modules that are missing, sets sysctls that differ from their file, has systemd read its default limits
anew, and has memory put together for hugepages that the kernel could not make.

modules: Modules that should be loaded.
sysctl: Values by name; gpuprov's file in /etc/sysctl.d has them already.
limits: systemd's settings, such as DefaultLimitNOFILE, as `systemctl show` prints them.
hugepages: How many pages of the default size there should be at least; 0 leaves them alone.

Returns:
set: What was not as wanted, a line each.
"""

from __future__ import annotations

from .. import running_kernel as kernel
from ..module import AnsibleModule

OPTIONS = {
    "modules": {"type": "list", "elements": "str", "default": []},
    "sysctl": {"type": "dict", "default": {}},
    "limits": {"type": "dict", "default": {}},
    "hugepages": {"type": "int", "default": 0},
}


def run(module: AnsibleModule) -> None:
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
