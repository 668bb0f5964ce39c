"""The counted first boot of a host, which falls back by itself if the boot fails, and the result of the last one."""

from collections.abc import Mapping
from typing import TypedDict

import msgspec

from gpuprov.core.safe_parse import Unreadable, parse_typed_json
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.kernel import next_boot
from gpuprov.host_code import first_boot_grub, first_boot_systemd


class Counting(TypedDict, total=False):
    """The fields of `FirstBoot` that the bootloader decides."""

    loader: str
    why_not: str
    counted: str


class FirstBoot(msgspec.Struct, frozen=True, kw_only=True):
    """The state."""

    loader: str = first_boot_grub.NAME
    # The reason why boots cannot be counted here.
    why_not: str = ""
    # The next step of `loader` (`once`, `back`).
    counted: str = ""
    # `run`, `kernel`: the run before which the host's state was saved, and its kernel then.
    run: str = ""
    kernel: str = ""
    # The kernel that was to start.
    tried: str = ""
    # Faults of the boot.
    found: str = ""
    # The saved state is without the NVIDIA driver.
    off: bool = False
    # A rollback ended with it.
    settled: bool = False
    # systemd lets a watchdog reset the machine.
    watchdog: bool = False
    # Files of GRUB's defaults that are newer than its menu, if the first counted reboot regenerates the menu.
    pending: tuple[str, ...] = ()


def parse(output: Output) -> FirstBoot:
    values = {name: value for name, _, value in (line.partition("=") for line in output.text.splitlines())}
    if values.get("container") not in ("0", "1"):  # 127: there is no such program
        raise ProbeFailed("how the bootloader counts boots cannot be read")
    try:
        state = parse_typed_json(values.get("state") or "{}", FirstBoot)
    except Unreadable:
        state = FirstBoot(found="its record cannot be read")
    systemd = values.get("loader") == first_boot_systemd.NAME
    return msgspec.structs.replace(
        state,
        **(_parse_systemd(values, output) if systemd else _parse_grub(values)),
        watchdog=values.get("watchdog", "") not in ("", "0", "infinity"),
        pending=tuple(sorted(values.get("pending", "").split())),
    )


def _parse_grub(values: Mapping[str, str]) -> Counting:
    why = first_boot_grub.why_not(
        container=values.get("container") == "0",
        menu=values.get("menu") == "0",
        environment=values.get("environment") == "0",
        layers=values.get("layers", ""),
        system=values.get("system", ""),
    )
    return {"why_not": why, "counted": values.get("counted", "")}


def _parse_systemd(values: Mapping[str, str], output: Output) -> Counting:
    why = first_boot_systemd.why_not(
        container=values.get("container") == "0",
        info=values.get("info", ""),
        program=values.get("program") == "0",
        writable=values.get("writable") == "0",
        saved="@saved" in (values.get("default"), values.get("saved")),
        line=values.get("line") == "0",
        listing=[line.removeprefix("list ") for line in output.text.splitlines() if line.startswith("list ")],
    )
    counted = first_boot_systemd.counts(values.get("default", ""), values.get("one_shot", ""))
    return {"loader": first_boot_systemd.NAME, "why_not": why, "counted": counted}


# grub-probe looks at every disk, so it runs only if a failed boot is to be undone.
FIRST_BOOT = Probe(
    "first_boot",
    f"""systemd-detect-virt --container --quiet; echo "container=$?"
echo "state="$(head -n 1 /var/lib/gpuprov/first_boot.json 2>/dev/null)
echo "watchdog="$(systemctl show -p RuntimeWatchdogUSec 2>/dev/null | sed -n 's/^RuntimeWatchdogUSec=//p')
{next_boot.EFI}case $(efi LoaderInfo) in {first_boot_systemd.NAME}*)
  echo "loader={first_boot_systemd.NAME}"
  echo "info="$(efi LoaderInfo)
  echo "default="$(efi {first_boot_systemd.DEFAULT})
  echo "one_shot="$(efi {first_boot_systemd.ONE_SHOT})
  command -v bootctl >/dev/null; echo "program=$?"
  [ -w $v ]; echo "writable=$?"
  cat {" ".join(first_boot_systemd.LINES)} 2>/dev/null | grep -q '[^[:space:]]'; echo "line=$?"
  if [ -n "$back" ]; then
    sed -n 's/^default[[:space:]]*/saved=/p' "$(bootctl --print-esp-path 2>/dev/null)/loader/loader.conf" 2>/dev/null
    bootctl list --no-pager 2>/dev/null | sed 's/^/list /'
  fi
  exit 0 ;;
esac
g=/boot/grub
[ -f $g/grub.cfg ] && command -v update-grub >/dev/null; echo "menu=$?"
[ -f $g/grubenv ]; echo "environment=$?"
sed -n 's/^{first_boot_grub.VARIABLE}=/counted=/p' $g/grubenv 2>/dev/null
if [ -n "$back" ]; then
  echo "layers="$(grub-probe --target=abstraction $g/grubenv 2>/dev/null)
  echo "system="$(grub-probe --target=fs $g/grubenv 2>/dev/null)
  grep -qs gpuprov/boot.cfg $g/grub.cfg ||
    echo "pending="$(find /etc/default/grub /etc/default/grub.d /etc/grub.d -type f -newer $g/grub.cfg 2>/dev/null)
fi
true""",
    parse,
    "grub-editenv list; grep -A3 gpuprov-kept /boot/grub/gpuprov/boot.cfg; "
    "bootctl list; journalctl -u gpuprov-first-boot",
    lambda host: {"back": "1"} if host.on_failure == "rollback" else {},
)
