"""Whether a boot of this host is counted, so that it goes back by itself where the boot fails; and what became of the last one."""

from __future__ import annotations

import msgspec

from gpuprov.onhost import first_boot, first_boot_judge
from gpuprov.probe.base import Output, Probe, ProbeFailed
from gpuprov.reading import Unreadable, typed_json


class FirstBoot(msgspec.Struct, frozen=True, kw_only=True):
    """`why_not`: why boots cannot be counted here. `counted`: what GRUB does next (`once`, `back`). `run`, `kernel`: before which run
    the host was kept, and with which kernel; `tried`: the kernel that was to start. `found`: what was wrong with the boot. `off`: it
    is kept without the NVIDIA driver. `settled`: a rollback has ended there. `watchdog`: systemd has one reset the machine.
    `pending`: files of GRUB's defaults that its menu is older than, where the first counted reboot makes that menu anew."""

    why_not: str = ""
    counted: str = ""
    run: str = ""
    kernel: str = ""
    tried: str = ""
    found: str = ""
    off: bool = False
    settled: bool = False
    watchdog: bool = False
    pending: tuple[str, ...] = ()


def parse(output: Output) -> FirstBoot:
    told = {name: value for name, _, value in (line.partition("=") for line in output.text.splitlines())}
    if told.get("container") not in ("0", "1"):  # 127: there is no such program
        raise ProbeFailed("how the bootloader counts boots cannot be read")
    try:
        state = typed_json(told.get("state") or "{}", FirstBoot)
    except Unreadable:
        state = FirstBoot(found="its record cannot be read")
    return msgspec.structs.replace(
        state,
        why_not=first_boot.why_not(
            container=told.get("container") == "0",
            menu=told.get("menu") == "0",
            environment=told.get("environment") == "0",
            layers=told.get("layers", ""),
            system=told.get("system", ""),
        ),
        counted=told.get("counted", ""),
        watchdog=told.get("watchdog", "") not in ("", "0", "infinity"),
        pending=tuple(sorted(told.get("pending", "").split())),
    )


FIRST_BOOT = Probe(
    "first_boot",
    f"""g=/boot/grub
systemd-detect-virt --container --quiet; echo "container=$?"
[ -f $g/grub.cfg ] && command -v update-grub >/dev/null; echo "menu=$?"
[ -f $g/grubenv ]; echo "environment=$?"
sed -n 's/^{first_boot_judge.VARIABLE}=/counted=/p' $g/grubenv 2>/dev/null
if [ -n "$back" ]; then
  echo "layers="$(grub-probe --target=abstraction $g/grubenv 2>/dev/null)
  echo "system="$(grub-probe --target=fs $g/grubenv 2>/dev/null)
  grep -qs gpuprov/boot.cfg $g/grub.cfg ||
    echo "pending="$(find /etc/default/grub /etc/default/grub.d /etc/grub.d -type f -newer $g/grub.cfg 2>/dev/null)
fi
echo "state="$(head -n 1 /var/lib/gpuprov/first_boot.json 2>/dev/null)
echo "watchdog="$(systemctl show -p RuntimeWatchdogUSec --value 2>/dev/null)
true""",
    parse,
    "grub-editenv list; grep -A3 gpuprov-kept /boot/grub/gpuprov/boot.cfg; journalctl -u gpuprov-first-boot",
    lambda host: {"back": "1"} if host.on_failure == "rollback" else {},
)
"""grub-probe looks at every disk: only where a boot that fails is to be undone."""
