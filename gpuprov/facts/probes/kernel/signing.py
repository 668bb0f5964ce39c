"""Signing of kernel modules: DKMS's settings, the site's key, the signature of each module on disk; and requests to
shim to enrol a certificate."""

from typing import Literal

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.rules.certificates import serial

FOLDER = "/var/lib/gpuprov/signing"
KEY_FILE, CERTIFICATE_FILE = f"{FOLDER}/modules.key", f"{FOLDER}/modules.crt"
SETTINGS_FILE = "/etc/dkms/framework.conf.d/gpuprov.conf"
# The first DKMS that reads drop-ins and signs with the key that they name (https://github.com/dell/dkms, tag v3.0.4,
# dkms.in).
DKMS_SINCE = "3.0.4"


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The signature of a module: the signer's name and its certificate's serial number; both empty for an unsigned
    module."""

    kernel: str
    module: str
    signer: str = ""
    serial: str = ""


class ModuleSigning(msgspec.Struct, frozen=True, kw_only=True):
    """The state. `settings`: DKMS's settings, the last value of each. `key`: owner and mode of the site's key, empty
    without a key. `certificate`: SHA-256 of its certificate's file. `pair`: whether the two belong together; None
    without openssl."""

    settings: dict[str, str] = {}
    key: str = ""
    certificate: str = ""
    pair: bool | None = False
    written: bool = False
    modules: tuple[Signature, ...] = ()


def parse_signing(output: Output) -> ModuleSigning:
    rows = [line.split("|") for line in output.text.splitlines()]
    fields = {row[0]: row[1] for row in rows if len(row) == 2}
    return ModuleSigning(
        settings={row[1]: row[2] for row in rows if row[0] == "setting"},
        key=fields.get("key", ""),
        certificate=fields.get("certificate", ""),
        pair=None if fields.get("pair") == "?" else fields.get("pair") == "1",
        written="written" in fields,
        modules=tuple(
            Signature(kernel=row[1], module=row[2], signer=row[3], serial=serial(row[4]))
            for row in rows
            if row[0] == "module" and len(row) == 5
        ),
    )


# Number of hexadecimal digits of a fingerprint in mokutil's short list.
SHORT = 10


class Enrolled(frozenset[str]):
    """Fingerprints of certificates."""

    # Their serial numbers.
    serials: frozenset[str] = frozenset()
    # Every certificate has one in the list.
    whole: bool = False


def parse_enrolled(output: Output) -> Enrolled:
    lines = [line.strip().lower() for line in output.text.splitlines() if line.strip()]
    serials = [line.removeprefix("serial ") for line in lines if line.startswith("serial ")]
    # SHA1 Fingerprint: 76:A0:92:06:58:00:BF:37:69:01:C3:72:CD:55:A9:0E:1F:DE:D2:E0
    # 2bb010e24d fedoraca     (the short list of mokutil 0.7.1)
    prints = [line.replace(":", "") for line in lines if not line.startswith("serial ")]
    enrolled = Enrolled(prints)
    enrolled.serials = frozenset(map(serial, serials))
    enrolled.whole = len(serials) == len(prints) > 0
    return enrolled


MODULE_SIGNING = Probe(
    "module_signing",
    rf"""sed -n "s/[\"']//g;s/^[[:space:]]*\(mok_signing_key\|mok_certificate\)=\(.*\)/setting|\1|\2/p" \
  /etc/dkms/framework.conf /etc/dkms/framework.conf.d/*.conf 2>/dev/null
[ -e {SETTINGS_FILE} ] && echo "written|1"
k={KEY_FILE} c={CERTIFICATE_FILE}
[ -e $k ] && stat -c 'key|%U %a' $k
if [ -e $c ]; then
  sha256sum < $c | sed 's/^/certificate|/;s/ .*//'
  p=$(openssl pkey -in $k -pubout 2>/dev/null </dev/null)
  q=$(openssl x509 -in $c -noout -pubkey 2>/dev/null || openssl x509 -inform DER -in $c -noout -pubkey 2>/dev/null)
  if ! command -v openssl >/dev/null; then echo 'pair|?'; elif [ -n "$p" ] && [ "$p" = "$q" ]; then echo 'pair|1'; fi
fi
for d in /lib/modules/*; do
  r=${{d##*/}}
  for m in nvidia-current nvidia-current-open nvidia; do
    f=$(modinfo -k "$r" -n $m 2>/dev/null) || continue
    for o in "${{f%/*}}"/nvidia*.ko*; do n=${{o##*/}}; echo "module|$r|${{n%%.ko*}}"; modinfo "$o" 2>/dev/null; done
    break
  done
done | awk '/^module[|]/ {{ if (m != "") print m "|" s "|" k; m = $0; s = k = "" }}
  /^[^ \t]/ {{ f = $1 }} {{ v = $0; sub(/^[a-z_]+:[ \t]*/, "", v) }}
  f == "signer:" {{ s = v }} f == "sig_key:" {{ gsub(/[ \t]/, "", v); k = k v }} END {{ if (m != "") print m "|" s "|" k }}'
true""",
    parse_signing,
    "cat /etc/dkms/framework.conf.d/*.conf; modinfo -k $(uname -r) nvidia | grep -E '^(signer|sig_key)'",
)
# SHA-1 fingerprints and serial numbers of the certificates that the firmware, or shim, trusts; if mokutil shows no
# more, the beginnings of the fingerprints (`SHORT` digits).
#
# mokutil 0.7.1 (https://github.com/lcp/mokutil/commit/f8cc30d) lists them in short without --verbose-listing; before it
# and from 0.7.2 on they are shown in full.
ENROLLED = Probe(
    "enrolled_certificates",
    r"""for what in --list-enrolled --db; do
  o=$(LC_ALL=C mokutil $what 2>/dev/null)
  case $o in *'SHA1 Fingerprint'* | '') ;; *) v=$(LC_ALL=C mokutil --verbose-listing $what 2>/dev/null)
    o=${v:-$o} ;; esac
  printf '%s\n' "$o" | sed -n 's/^SHA1 Fingerprint: *//p; s/^\([0-9a-f]\{10\}\) .*/\1/p
    s/^ *Serial Number: .*(0x\([0-9a-f]*\)).*/serial \1/p; /^ *Serial Number: *$/{n;s/^ *\([0-9a-f:]*\)$/serial \1/p}'
done
true""",
    parse_enrolled,
    "mokutil --list-enrolled; mokutil --db",
)
# The files of the site's key on the host.
SITE_KEY = Probe(
    "site_key",
    f"for f in {KEY_FILE} {CERTIFICATE_FILE} {SETTINGS_FILE}; do [ -e $f ] && echo $f; done; true",
    lambda output: tuple(output.text.split()),
    f"ls {FOLDER} {SETTINGS_FILE}",
    own=True,
)


VARIABLES = "/sys/firmware/efi/efivars"


class MokState(msgspec.Struct, frozen=True, kw_only=True):
    """`efi`: the machine booted by EFI; `variables`: how its variables are mounted, empty if they are not; `tool`:
    mokutil is installed; `pending`: SHA-1 fingerprints of certificates that MokManager asks about at the next boot, or
    their beginnings (`signing.SHORT`)."""

    efi: bool = False
    variables: Literal["", "ro", "rw"] = ""
    tool: bool = False
    pending: frozenset[str] = frozenset()


def parse(output: Output) -> MokState:
    rows = [line.strip().partition("|")[::2] for line in output.text.splitlines()]
    values = dict(rows)
    mounted: Literal["", "ro", "rw"] = (
        "ro" if values.get("variables") == "ro" else "rw" if "variables" in values else ""
    )
    return MokState(
        efi="efi" in values,
        variables=mounted,
        tool="tool" in values,
        # SHA1 Fingerprint: 76:A0:92:06:58:00:BF:37:69:01:C3:72:CD:55:A9:0E:1F:DE:D2:E0
        # 2bb010e24d fedoraca     (the short list of mokutil 0.7.1)
        pending=frozenset(value.replace(":", "").strip().lower() for key, value in rows if key == "new"),
    )


# The request is shim's variable MokNew. MokManager deletes it when it starts, whether or not somebody then answers it
# (check_mok_request in https://github.com/rhboot/shim/blob/main/MokManager.c).
MOK_STATE = Probe(
    "mok_state",
    rf"""echo 'looked|1'
[ ! -d /sys/firmware/efi ] || echo 'efi|1'
while read -r a b c o x; do
  [ "$b" = {VARIABLES} ] || continue
  case ",$o," in *,ro,*) echo 'variables|ro' ;; *) echo 'variables|rw' ;; esac
done </proc/mounts
command -v mokutil >/dev/null || exit 0
echo 'tool|1'
o=$(LC_ALL=C mokutil --list-new 2>/dev/null)
case $o in *'SHA1 Fingerprint'* | '') ;; *) v=$(LC_ALL=C mokutil --verbose-listing --list-new 2>/dev/null)
  o=${{v:-$o}} ;; esac
printf '%s\n' "$o" | sed -n 's/^SHA1 Fingerprint: */new|/p; s/^\([0-9a-f]\{{10\}}\) .*/new|\1/p'""",
    parse,
    f"mokutil --list-new; grep {VARIABLES} /proc/mounts",
    speaks=True,
    blank=r"looked\|",
)
