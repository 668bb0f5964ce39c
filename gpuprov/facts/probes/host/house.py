"""State that gpuprov, the firmware and other installers keep on a host: receipt, lock, reboot reasons, Secure Boot,
leftovers."""

import msgspec

from gpuprov.core.safe_parse import Unreadable, parse_typed_json
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.host_code import fence, machine
from gpuprov.host_code.packages.other_driver import PROGRAMS
from gpuprov.host_code.receipt import BOOT_ID

RECEIPT_FILE = "/var/lib/gpuprov/receipt.json"
LOCK_FILE = "/run/gpuprov/lock/owner.json"
FENCE_FILE = "/var/lib/gpuprov/lock/fence"
DRAINED_FILE = "/var/lib/gpuprov/drained.json"


class Applied(msgspec.Struct, frozen=True):
    """One capability's entry in the receipt. `resources`: as `host_code.receipt` lists them; None: written by an
    earlier gpuprov without them."""

    digest: str
    applied_at: str = ""
    resources: tuple[str, ...] | None = None


class Receipt(msgspec.Struct, frozen=True):
    """The capabilities applied to the host, with times."""

    applied_at: str = ""
    gpuprov_version: str = ""
    capabilities: dict[str, Applied] = {}
    # The error if the file cannot be read; then nothing is known.
    damaged: str = ""


class Lock(msgspec.Struct, frozen=True):
    """The present holder of the host's lock."""

    user: str = ""
    host: str = ""
    pid: int = 0
    since: str = ""
    run: str = ""
    controller: str = ""
    pid_start: str = ""
    # The host's name in the holder's inventory.
    name: str = ""
    damaged: str = ""


class Drained(msgspec.Struct, frozen=True):
    """The gpuprov run that has drained the host from its scheduler and not returned it."""

    by: str = ""
    run: str = ""
    since: str = ""
    # Its name in that run's inventory.
    host: str = ""
    # The error if the note cannot be read.
    damaged: str = ""


class SigningKey(msgspec.Struct, frozen=True):
    """The certificate of the key that DKMS signs modules with; true in a condition if the firmware trusts it."""

    certificate: str = ""
    enrolled: bool = False
    exists: bool = False

    def __bool__(self) -> bool:
        return self.enrolled


def parse_receipt(output: Output) -> Receipt | None:
    if not output.text.strip():
        return None
    if "\ufffd" in output.text:  # gpuprov writes ASCII
        return Receipt(damaged="a byte of it is not UTF-8")
    try:
        return parse_typed_json(output.text, Receipt)
    except Unreadable as error:
        return Receipt(damaged=str(error))


def parse_lock(output: Output) -> Lock | None:
    if not output.text.strip():
        return None
    try:
        return parse_typed_json(output.text, Lock, strict=False)
    except Unreadable as error:
        return Lock(damaged=str(error))


def parse_drained(output: Output) -> Drained | None:
    if output.status:
        raise ProbeFailed(f"whether gpuprov has drained it cannot be read: {output.error.strip()[:200] or 'no answer'}")
    if not output.text.strip():
        return None
    try:
        return parse_typed_json(output.text, Drained)
    except Unreadable as error:
        return Drained(damaged=str(error))


def parse_fence(output: Output) -> dict[str, str]:
    return fence.parse_taker(output.text)


def parse_machine(output: Output) -> str:
    return " ".join(output.text.split())


def parse_reasons(output: Output) -> dict[str, str]:
    pairs = (line.partition("|") for line in output.text.splitlines() if "|" in line)
    return {name: reason for name, _, reason in pairs}


def parse_key(output: Output) -> SigningKey:
    state, _, path = output.text.strip().partition("|")
    return SigningKey(path, state == "enrolled", state not in ("", "missing"))


def parse_secure_boot(output: Output) -> bool:
    return output.text.split()[-1:] == ["1"]


# A file without a word, as a power loss leaves it, is damaged; none is a host that gpuprov was never applied to.
RECEIPT = Probe(
    "receipt",
    f"[ -e {RECEIPT_FILE} ] || exit 0; [ -f {RECEIPT_FILE} ] && [ -s {RECEIPT_FILE} ] || echo -\ncat {RECEIPT_FILE} "
    "2>/dev/null; true",
    parse_receipt,
    f"cat {RECEIPT_FILE}",
    own=True,
)
LOCK = Probe(
    "lock",
    f"[ -d /run/gpuprov/lock ] || exit 0; cat {LOCK_FILE} 2>/dev/null || echo '-'",
    parse_lock,
    f"cat {LOCK_FILE}",
    own=True,
)
# The note written by `gpuprov.fleet.drain.noted`.
DRAINED = Probe(
    "drained", f"[ ! -e {DRAINED_FILE} ] || cat {DRAINED_FILE}", parse_drained, f"cat {DRAINED_FILE}", own=True
)
# The present or last holder of the lock, with its token; empty if there was none, or the file is damaged, as in
# `host_code.lock`.
FENCE = Probe("fence", f"cat {FENCE_FILE} 2>/dev/null; true", parse_fence, f"cat {FENCE_FILE}", own=True)
# The machine's identity, independent of its name: see `host_code.machine`.
MACHINE = Probe("which_machine", machine.IDENTITY, parse_machine, machine.IDENTITY, speaks=True)
# The kernel's own name of the present boot.
BOOT = Probe("boot", f"cat {BOOT_ID}", lambda output: output.text.strip(), f"cat {BOOT_ID}")
REBOOT_REASONS = Probe(
    "reboot_reasons",
    'for f in /run/gpuprov/reboot-required.d/*; do [ -f "$f" ] || continue; printf "%s|%s\\n" "${f##*/}" "$(head -n '
    '1 "$f")"; done',
    parse_reasons,
    "grep -r . /run/gpuprov/reboot-required.d",
    own=True,
)
# It is also off for the kernel if shim's validation is disabled (mokutil --disable-validation):
# https://github.com/torvalds/linux/blob/master/drivers/firmware/efi/libstub/secureboot.c
SECURE_BOOT = Probe(
    "secure_boot",
    """cd /sys/firmware/efi/efivars 2>/dev/null || exit 0
case "$(cat MokSBStateRT-* 2>/dev/null | od -An -tu1)" in *' 1') exit 0 ;; esac
cat SecureBoot-* 2>/dev/null | od -An -tu1; true""",
    parse_secure_boot,
    "mokutil --sb-state",
    blank=r"[\s\d]+$",
)
# Programs that only a runfile installation leaves behind.
LEFTOVERS = Probe(
    "runfile_leftovers",
    f"ls {' '.join(PROGRAMS)} 2>/dev/null; true",
    lambda output: tuple(output.text.split()),
    f"ls {' '.join(PROGRAMS)}",
)
# The certificate of the key that DKMS signs with if the spec names none: from framework.conf and its drop-ins except
# gpuprov's own, else the distribution's default (https://github.com/dell/dkms/blob/main/dkms.in, prepare_mok).
DKMS_KEY_ENROLLED = Probe(
    "dkms_key_enrolled",
    r"""i=$(ID=; . /etc/os-release 2>/dev/null; echo "$ID"); r=$(uname -r) || exit 0
c=$(sed -n "s/[\"']//g;s#\\\$kernelver#$r#g;s#\\\${kernelver}#$r#g;s/^[[:space:]]*\(mok_[a-z_]*\)=/\1=/p" \
  /etc/dkms/framework.conf $(ls /etc/dkms/framework.conf.d/*.conf 2>/dev/null | grep -v /gpuprov.conf) 2>/dev/null)
[ -z "$c" ] || case "$(dkms --version 2>/dev/null)" in *[-\ ][12].*) c="" ;; esac
k=$(echo "$c" | sed -n 's/^mok_signing_key=//p' | tail -n 1)
p=$(echo "$c" | sed -n 's/^mok_certificate=//p' | tail -n 1)
[ -z "$k" ] && [ "$i" = ubuntu ] && p=/var/lib/shim-signed/mok/MOK.der
[ -z "$p" ] && p=/var/lib/dkms/mok.pub
if ! [ -e "$p" ]; then echo "missing|$p"
elif LC_ALL=C mokutil --test-key "$p" 2>/dev/null | grep -q 'is already enrolled'; then echo "enrolled|$p"
else echo "other|$p"; fi""",
    parse_key,
    "mokutil --test-key $(sed -n 's/^mok_certificate=//p' /etc/dkms/framework.conf); mokutil --list-enrolled",
)
# True if an apply failed, or was interrupted.
MARKER = Probe(
    "apply_marker",
    "[ -e /var/lib/gpuprov/applying.json ] && echo 1; true",
    lambda output: output.text.strip() == "1",
    "cat /var/lib/gpuprov/applying.json",
    own=True,
)
