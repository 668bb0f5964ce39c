"""The licence of a vGPU guest: nvidia-gridd, its configuration and tokens, and the licence that nvidia-smi shows.

No token's content leaves the host, only its checksum, mode and expiry date.
"""

import re
from datetime import UTC, datetime

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.gpus.smi_query import OWN, judge
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.host.systemd import UnitState


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A client configuration token. `mode` as `0744`; `expires` in seconds since 1970, 0 if the token does not state
    it."""

    path: str
    mode: str
    owner: str
    sha256: str
    expires: int = 0


class Gridd(UnitState, frozen=True, kw_only=True):
    """The licensing daemon."""

    installed: bool = False
    # Those of gridd.conf.
    settings: dict[str, str] = {}
    # There is one.
    configured: bool = False
    tokens: tuple[Token, ...] = ()
    # The last lines of its unit, without tokens.
    log: tuple[str, ...] = ()


class Licence(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU's licence as nvidia-smi shows it. `mode` is VGPU, Pass-Through, None ...; `status` empty: no licensed
    product."""

    bus: str
    mode: str = ""
    product: str = ""
    status: str = ""

    @property
    def expires(self) -> int:
        """Expiry of the licence in seconds since 1970; 0 if it does not expire, or that is unknown."""
        # License Status                    : Licensed (Expiry: 2025-3-19 7:29:4 GMT)
        # License Status                    : Licensed (Expiry: N/A)
        match = re.search(r"Expiry: (\d+)-(\d+)-(\d+) (\d+):(\d+):(\d+) GMT", self.status)
        return int(datetime(*(int(part) for part in match.groups()), tzinfo=UTC).timestamp()) if match else 0  # type: ignore[misc,arg-type]


class Licences(msgspec.Struct, frozen=True):
    """nvidia-smi's report on each GPU, or its error."""

    gpus: tuple[Licence, ...] = ()
    complaint: str = ""


def parse_gridd(output: Output) -> Gridd:
    rows = output.rows()
    single = {kind: values[-1] for kind, values in rows.items()}
    settings: dict[str, str] = {}
    for line in rows.get("setting", ()):
        key, _, value = line.partition("=")
        settings[key.strip()] = value.partition("#")[0].strip().strip('"')
    tokens: list[Token] = []
    for line in rows.get("token", ()):
        mode, owner, sha256, expires, path = line.split("|", 4)
        tokens.append(Token(path=path, mode=mode.zfill(4), owner=owner, sha256=sha256, expires=int(expires or 0)))
    return Gridd(
        installed="program" in single,
        settings=settings,
        configured="config" in single,
        tokens=tuple(tokens),
        **systemd.parse_state(rows),
        log=tuple(rows.get("log", ())),
    )


def parse_licences(output: Output) -> Licences:
    if output.status == 127:
        return Licences((), "nvidia-smi is not installed")
    judge(output.text.splitlines())
    gpus: list[Licence] = []
    for line in output.text.splitlines():
        #     Product Name                          : GRID V100D-8C
        #     vGPU Software Licensed Product
        #         Product Name                      : NVIDIA Virtual Compute Server
        #         License Status                    : Licensed (Expiry: 2025-3-19 7:29:4 GMT)
        key, _, value = (part.strip() for part in line.partition(" : "))
        if match := re.match(r"GPU (?:[0-9A-Fa-f]{4})?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])", line):
            gpus.append(Licence(bus=match[1].lower()))
        elif gpus and key in ("Virtualization Mode", "Virtualization mode", "Product Name", "License Status"):
            name = {"Product Name": "product", "License Status": "status"}.get(key, "mode")
            gpus[-1] = msgspec.structs.replace(gpus[-1], **{name: value})
    complaint = "" if gpus else " ".join((output.text or output.error).split()) or "nvidia-smi shows no GPU"
    return Licences(tuple(gpus), complaint)


# nvidia-gridd, and the tokens in the folder that the spec or else gridd.conf names; paths as in NVIDIA's licensing
# guide: https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/
GRIDD = Probe(
    "gridd",
    """[ -x /usr/bin/nvidia-gridd ] && echo "program|/usr/bin/nvidia-gridd"
c=/etc/nvidia/gridd.conf; t=/etc/nvidia/ClientConfigToken
if [ -e $c ]; then
  echo 'config|'
  sed -n 's/^[[:space:]]*\\([A-Za-z][A-Za-z0-9]*\\)[[:space:]]*=/setting|\\1=/p' $c
  o=$(sed -n 's/^[[:space:]]*ClientConfigTokenPath[[:space:]]*=[[:space:]]*"\\{0,1\\}\\([^"#]*[^"# ]\\).*/\\1/p' $c |
    tail -n 1)
fi
for f in "${tokens:-${o:-$t}}"/client_configuration_token_*.tok; do
  [ -f "$f" ] || continue
  e=$(cut -d. -f2 "$f" | tr '_-' '/+' | { cat; echo '==='; } | tr -d '\\n' | base64 -d 2>/dev/null |
    tr ',{}' '\\n\\n\\n' \\
    | sed -n 's/^ *"exp" *: *\\([0-9]\\{9,11\\}\\).*/\\1/p' | head -n 1)
  echo "token|$(stat -c '%a|%U' "$f")|$(sha256sum < "$f" | cut -d' ' -f1)|$e|$f"
done
u=nvidia-gridd.service
"""
    + systemd.STATE
    + """journalctl -q --no-pager -o cat -n 30 -u $u 2>/dev/null | sed 's/eyJ[A-Za-z0-9_.-]*/(token)/g; s/^/log|/'
true""",
    parse_gridd,
    "systemctl status nvidia-gridd; grep -v '^#' /etc/nvidia/gridd.conf; sha256sum /etc/nvidia/ClientConfigToken/*.tok",
    asks=lambda host: {"tokens": getattr(host.capabilities.get("vgpu_guest"), "token_directory", "")},
    blank=systemd.BLANK,
)
# Licences of vGPUs, and of GPUs that need one for a licensed feature.
LICENCES = Probe(
    "vgpu_licences",
    """command -v nvidia-smi >/dev/null || exit 127
nvidia-smi -q 2>&1 | awk '"""
    + OWN
    + """
/^NVIDIA-SMI has failed|^No devices|^Failed/ { print }
/^GPU / { print; f=0 }
/^    [^ ]/ { f=0 }
/^    (vGPU Software|GRID) Licensed Product/ { f=1 }
/^        Virtualization [Mm]ode / { print }
f && /^        (Product Name|License Status) / { print }'""",
    parse_licences,
    "nvidia-smi -q | grep -E '^GPU|Virtualization Mode|License Status'",
    knows_missing=True,
)
