"""What gpuprov itself and the machine's firmware left on a host: receipt, lock, reboot reasons, Secure Boot, other installers."""

from __future__ import annotations

import msgspec

from gpuprov.probe.base import Output, Probe

RECEIPT_FILE = "/var/lib/gpuprov/receipt.json"
LOCK_FILE = "/run/gpuprov/lock/owner.json"


class Applied(msgspec.Struct, frozen=True):
    """One capability's entry in the receipt."""

    digest: str
    applied_at: str = ""


class Receipt(msgspec.Struct, frozen=True):
    """What was applied to the host, and when. `damaged` holds the reason if the file cannot be read; then nothing is known."""

    applied_at: str = ""
    gpuprov_version: str = ""
    capabilities: dict[str, Applied] = {}
    damaged: str = ""


class Lock(msgspec.Struct, frozen=True):
    """Who works on the host right now."""

    user: str = ""
    host: str = ""
    pid: int = 0
    since: str = ""
    damaged: str = ""


def parse_receipt(output: Output) -> Receipt | None:
    if not output.text.strip():
        return None
    try:
        return msgspec.json.decode(output.text, type=Receipt)
    except msgspec.MsgspecError as error:
        return Receipt(damaged=str(error))


def parse_lock(output: Output) -> Lock | None:
    if not output.text.strip():
        return None
    try:
        return msgspec.json.decode(output.text, type=Lock, strict=False)
    except msgspec.MsgspecError as error:
        return Lock(damaged=str(error))


def parse_reasons(output: Output) -> dict[str, str]:
    pairs = (line.partition("|") for line in output.text.splitlines() if "|" in line)
    return {name: reason for name, _, reason in pairs}


def parse_secure_boot(output: Output) -> bool:
    return output.text.split()[-1:] == ["1"]


RECEIPT = Probe("receipt", f"cat {RECEIPT_FILE} 2>/dev/null; true", parse_receipt, f"cat {RECEIPT_FILE}")
LOCK = Probe(
    "lock",
    f"[ -d /run/gpuprov/lock ] || exit 0; cat {LOCK_FILE} 2>/dev/null || echo '-'",
    parse_lock,
    f"cat {LOCK_FILE}",
)
REBOOT_REASONS = Probe(
    "reboot_reasons",
    'for f in /run/gpuprov/reboot-required.d/*; do [ -f "$f" ] || continue; printf "%s|%s\\n" "${f##*/}" "$(head -n 1 "$f")"; done',
    parse_reasons,
    "grep -r . /run/gpuprov/reboot-required.d",
)
SECURE_BOOT = Probe(
    "secure_boot",
    "cat /sys/firmware/efi/efivars/SecureBoot-* 2>/dev/null | od -An -tu1; true",
    parse_secure_boot,
    "mokutil --sb-state",
)
LEFTOVERS = Probe(
    "runfile_leftovers",
    "ls /usr/bin/nvidia-uninstall /usr/bin/nvidia-installer 2>/dev/null; true",
    lambda output: tuple(output.text.split()),
    "ls /usr/bin/nvidia-uninstall /usr/bin/nvidia-installer",
)
"""Programs that only a runfile installation leaves behind."""
DKMS_KEY_ENROLLED = Probe(
    "dkms_key_enrolled",
    "mokutil --test-key /var/lib/dkms/mok.pub 2>/dev/null | grep -q 'is already enrolled' && echo 1; true",
    lambda output: output.text.strip() == "1",
    "mokutil --test-key /var/lib/dkms/mok.pub",
)
MARKER = Probe(
    "apply_marker",
    "[ -e /var/lib/gpuprov/applying.json ] && echo 1; true",
    lambda output: output.text.strip() == "1",
    "cat /var/lib/gpuprov/applying.json",
)
"""Whether an apply was cut off before it ended."""
