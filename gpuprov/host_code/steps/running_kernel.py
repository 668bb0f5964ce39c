"""Apply modules, sysctls, limits of services and hugepages to the running kernel.

Loads missing modules, sets sysctls that differ from their file, makes systemd reread its default limits, and compacts
memory for hugepages that the kernel could not allocate.

modules: Modules that should be loaded.
sysctl: Values by name; gpuprov's file in /etc/sysctl.d already contains them.
limits: systemd's settings, such as DefaultLimitNOFILE, in the format of `systemctl show`.
hugepages: Least number of hugepages of the default size; 0 leaves them alone.

Returns:
set: The settings that differed, one line each.
"""

from __future__ import annotations

from .. import running_kernel as kernel
from ..failed import Failed
from ..module import AnsibleModule

OPTIONS = {
    "modules": {"type": "list", "elements": "str", "default": []},
    "sysctl": {"type": "dict", "default": {}},
    "limits": {"type": "dict", "default": {}},
    "hugepages": {"type": "int", "default": 0},
}


def run(module: AnsibleModule) -> None:
    desired, now = module.params, not module.check_mode
    before, after = [], []
    missing = kernel.list_absent(desired["modules"])
    for name in missing:
        before.append(f"{name}: not loaded")
        after.append(f"{name}: loaded")
        if now:
            kernel.load(name)
    sysctls = {name: str(value) for name, value in desired["sysctl"].items()}
    differing = kernel.list_differing(sysctls)
    before += [f"{name} = {value}" for name, value in differing.items()]
    after += [f"{name} = {sysctls[name]}" for name in differing]
    if differing and now:
        kernel.set_sysctls()
    limits = kernel.list_differing_limits({name: str(value) for name, value in desired["limits"].items()})
    before += [f"{name}={value}" for name, value in limits.items()]
    after += [f"{name}={desired['limits'][name]}" for name in limits]
    if limits and now:
        kernel.reload_systemd()
    pages = kernel.count_hugepages() if desired["hugepages"] else 0
    if pages < desired["hugepages"]:
        before.append(f"hugepages: {int(pages)}")
        after.append(f"hugepages: {int(desired['hugepages'])}")
        if now and (pages := kernel.enlarge_hugepages(desired["hugepages"])) < desired["hugepages"]:
            raise Failed(
                f"kernel.hugepages: {pages} of {desired['hugepages']} pages are there, memory has no room for more."
                " Fix: reboot the host (sysctl sets them early in a boot), or fewer"
            )
    diff = {"before": "".join(f"{line}\n" for line in before), "after": "".join(f"{line}\n" for line in after)}
    module.exit_json(changed=bool(after), set=after, diff=diff)
