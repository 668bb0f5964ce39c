"""The NVIDIA Container Toolkit on a host: its release and settings, CDI specifications, device links, rootless
users."""

import re

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.safe_parse import Tree
from gpuprov.facts.probes.base import Output, Probe

GPU_KIND = "nvidia.com/gpu"


class Toolkit(msgspec.Struct, frozen=True, kw_only=True):
    """The installed toolkit. `version` of nvidia-ctk, empty if not installed. `settings` of its config.toml."""

    version: str = ""
    settings: Tree = {}
    # The error if they cannot be read.
    complaint: str = ""
    # Those with one.
    linked: tuple[str, ...] = ()
    # NVIDIA's device files without a link in /dev/char.
    unlinked: tuple[str, ...] = ()
    # The feature flags configured for nvidia-cdi-refresh.
    flags: tuple[str, ...] = ()
    # Files of old installations, and the unit of docker's snap where it starts.
    leftovers: tuple[str, ...] = ()
    # Low-level runtimes that nvidia-container-runtime may use and finds.
    runners: tuple[str, ...] = ()
    # Those of cri-o's packages, which are not in PATH.
    spares: tuple[str, ...] = ()


class Specification(msgspec.Struct, frozen=True, kw_only=True):
    """A CDI specification file: the devices it names, the driver versions in the file names it mounts."""

    path: str
    kind: str = ""
    devices: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    # Whether it gives containers /dev/nvidia-uvm.
    uvm: bool = False
    version: str = ""
    # Fields that older readers do not know.
    fields: tuple[str, ...] = ()
    # Only root can read it.
    closed: bool = False


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """The list from nvidia-smi: index and UUID of each GPU without MIG, `0:1` and UUID of each MIG device; or its
    error."""

    names: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    # Index and UUID of GPUs in MIG mode, which releases before 1.18 name beside their MIG devices.
    parents: tuple[str, ...] = ()
    complaint: str = ""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user, for rootless engines."""

    home: str
    # Has ids of its own in /etc/subuid.
    subordinate: bool
    # Its services run without a login.
    lingers: bool
    # The daemon.json in the home, None without one.
    daemon: str | None = None


def parse_toolkit(output: Output) -> Toolkit:
    fields: dict[str, list[str]] = {}
    config: list[str] = []
    for line in output.text.splitlines():
        if line.startswith(" "):
            config.append(line[1:])
        else:
            word, _, rest = line.partition(" ")
            fields.setdefault(word, []).append(rest)
    # NVIDIA Container Toolkit CLI version 1.18.0
    version = re.search(r"\d+(\.\d+)+", " ".join(fields.get("version", [])))
    settings, complaint = {}, ""
    try:
        settings = safe_parse.parse_toml("\n".join(config))
    except safe_parse.Unreadable as error:
        complaint = f"not valid TOML: {error}"
    return Toolkit(
        version=version[0] if version else "",
        settings=settings,
        complaint=complaint,
        linked=tuple(fields.get("linked", [])),
        unlinked=tuple(fields.get("unlinked", [])),
        flags=tuple(re.findall(r"[^\s,\"']+", (fields.get("flags") or [""])[-1])),
        leftovers=tuple(fields.get("leftover", [])),
        runners=tuple(fields.get("runner", [])),
        spares=tuple(fields.get("spare", [])),
    )


def parse_specifications(output: Output) -> tuple[Specification, ...]:
    made: list[Specification] = []
    for block in output.text.split("@spec ")[1:]:
        path, _, body = block.partition("\n")
        # A specification is YAML or JSON, which is read without a parser: it may be of any site, and large.
        #     cdiVersion: 0.6.0
        #     kind: nvidia.com/gpu
        #     devices:
        #     - name: all
        kinds = re.findall(r"^[ \t{,]*+\"?kind\"?:\s*\"?([^\s\",]+)", body, re.MULTILINE)
        names = re.findall(r"^[ \t{,-]*+\"?name\"?:\s*\"?([^\s\",]+)", body, re.MULTILINE)
        versions = re.findall(r"\.so\.(\d{3}(?:\.\d+)+)", body)
        spec = Specification(
            path=path,
            kind=kinds[0] if kinds else "",
            devices=tuple(dict.fromkeys(names)),
            versions=tuple(dict.fromkeys(versions)),
            uvm="@uvm" in body.splitlines(),
            version="".join(
                re.findall(r"^[ \t{,]*+\"?cdiVersion\"?:\s*[\"']?(\d+(?:\.\d+)*+)", body, re.MULTILINE)[:1]
            ),
            fields=tuple(re.findall(r"^@field (\w+)$", body, re.MULTILINE)),
            closed="@closed" in body.splitlines(),
        )
        made.append(spec)
    return tuple(made)


def parse_answers(output: Output) -> dict[str, str]:
    """Parse the error of each engine that cannot read a specification, by engine; empty for an engine that has the
    device."""
    answers: dict[str, str] = {}
    complaints: dict[str, str] = {}
    for line in output.text.splitlines():
        engine, _, words = line.partition(" ")
        # podman 4.3.1 of Debian 12 with --log-level=debug, on one line:
        #     time="2026-11-28T05:24:04Z" level=debug msg="The following error was triggered when refreshing the CDI
        #     registry: 1 error occurred:\n\t* failed to load CDI Spec: invalid CDI Spec: invalid version \"0.6.0\"\n\n"
        if match := re.search(r'refreshing the CDI registry: (.*?)"?\Z', words):
            message = re.sub(r"\\n|\\t|\A\d+ errors? occurred:", " ", match[1]).replace('\\"', '"').replace("*", " ")
            complaints[engine] = " ".join(message.split())
        # Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all, gpuprov.invalid/none=none
        elif match := re.search(r"unresolvable CDI devices (.*)\Z", words):
            answers[engine] = complaints.get(engine, "") if f"{GPU_KIND}=all" in match[1] else ""
    return answers


def parse_devices(output: Output) -> Devices:
    names: list[str] = []
    uuids: list[str] = []
    parents: list[str] = []
    mig = {line.split(",")[0].strip() for line in output.text.splitlines() if re.fullmatch(r"\d+, Enabled\s*", line)}
    gpu = ""
    count = 0
    for line in output.text.splitlines():
        # GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-00000001-0000-0000-0000-000000000000)
        #   MIG 3g.40gb     Device  0: (UUID: MIG-00000002-0000-0000-0000-000000000000)
        if match := re.match(r"GPU (\d+): .*\(UUID: (GPU-[^)]{1,100})\)", line):
            gpu, count = match[1], 0
            if gpu in mig:
                parents += [gpu, match[2]]
            else:
                names.append(gpu)
                uuids.append(match[2])
        elif match := re.match(r"\s+MIG .*\(UUID: (MIG-[^)]{1,100})\)", line):
            names.append(f"{gpu}:{count}")
            uuids.append(match[1])
            count += 1
    answered = any(line.startswith("GPU ") for line in output.text.splitlines())
    complaint = "" if answered else " ".join((output.text or output.error).split()) or "nvidia-smi is not installed"
    return Devices(names=tuple(names), uuids=tuple(uuids), parents=tuple(parents), complaint=complaint)


def parse_users(output: Output) -> dict[str, User]:
    users: dict[str, User] = {}
    for block in output.text.split("@user ")[1:]:
        head, *body = block.splitlines()
        name, home, subordinate, lingers, present = head.split("|")
        text = "\n".join(line[1:] for line in body) if present == "1" else None
        users[name] = User(home=home, subordinate=subordinate == "1", lingers=lingers == "1", daemon=text)
    return users


TOOLKIT = Probe(
    "container_toolkit",
    r"""command -v nvidia-ctk >/dev/null && echo "version $(nvidia-ctk --version 2>/dev/null | grep -i version)"
[ -f /etc/nvidia-container-runtime/config.toml ] && sed 's/^/ /' /etc/nvidia-container-runtime/config.toml && echo
for d in /dev/nvidia*; do
  [ -c "$d" ] || continue
  n=$(stat -L -c '%t %T' "$d"); l=/dev/char/$((0x${n% *})):$((0x${n#* }))
  if [ -e "$l" ]; then echo "linked $d"; else echo "unlinked $d"; fi
done
sed -n 's/^NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS=/flags /p' \
  /etc/nvidia-container-toolkit/nvidia-cdi-refresh.env 2>/dev/null
for f in /etc/apt/sources.list.d/libnvidia-container.list /etc/apt/sources.list.d/nvidia-docker.list \
  /etc/apt/sources.list.d/nvidia-container-runtime.list /usr/share/containers/oci/hooks.d/oci-nvidia-hook.json; do
  [ -e "$f" ] && echo "leftover $f"
done
for v in is-active is-enabled; do
  systemctl -q $v snap.docker.dockerd.service 2>/dev/null && echo 'leftover snap.docker.dockerd.service' && break
done
c=/etc/nvidia-container-runtime/config.toml
r=$(sed -n 's/^[[:space:]]*runtimes[[:space:]]*=//p' $c 2>/dev/null | grep -oE '"[^"]+"' | tr -d '"')
for p in ${r:-runc crun}; do p=$(command -v "$p") && echo "runner $p"; done
for p in /usr/libexec/crio/crun /usr/libexec/crio/runc; do [ -x "$p" ] && echo "spare $p"; done; true""",
    parse_toolkit,
    "nvidia-ctk --version; cat /etc/nvidia-container-runtime/config.toml; ls -l /dev/char | grep nvidia",
)
# Specifications of kind nvidia.com/gpu.
CDI = Probe(
    "cdi_specifications",
    r"""for f in /etc/cdi/* /var/run/cdi/*; do
  case $f in *.yaml | *.yml | *.json) [ -f "$f" ] || continue ;; *) continue ;; esac
  grep -qs 'nvidia\.com/gpu' "$f" || continue
  echo "@spec $f"
  grep -E '^[[:space:]{,-]*"?(cdiVersion|kind|name)"?:' "$f"
  grep -ohE '(additionalGids|intelRdt|netDevices)"?[[:space:]]*:' "$f" | sed 's/[^A-Za-z].*//; s/^/@field /' | sort -u
  grep -qE '/dev/nvidia-uvm("|$)' "$f" && echo @uvm
  [ -n "$(find -L "$f" -perm -0004)" ] && [ -n "$(find -L "${f%/*}" -maxdepth 0 -perm -0005)" ] || echo @closed
  grep -ohE 'lib(cuda|nvidia-ml)\.so\.[0-9]+(\.[0-9]+)+' "$f" | sort -u
done; true""",
    parse_specifications,
    "nvidia-ctk cdi list; ls -l /etc/cdi /var/run/cdi",
)
# podman's opinion of the specifications, requested as root if one is newer than all releases with CDI can read. The
# request includes a device that does not exist, so that podman fails before it starts anything; whatever it writes
# until then goes to a temporary folder, and CONTAINERS_CONF_OVERRIDE, which podman knows from 4.6 on, keeps the site's
# settings: https://github.com/containers/common/blob/v0.55.0/docs/containers.conf.5.md
CDI_ANSWERS = Probe(
    "cdi_answers",
    r"""[ "$(id -u)" = 0 ] && command -v podman >/dev/null || exit 0
f=$(grep -lsE 'nvidia\.com/gpu' /etc/cdi/* /var/run/cdi/*)
IFS='
'
grep -hsE 'cdiVersion|additionalGids|intelRdt|netDevices' $f /dev/null | grep -qvE 'cdiVersion.*[^0-9.]0\.[1-5]\.0' ||
  exit 0
d=$(mktemp -d /run/gpuprov-cdi.XXXXXX) && trap 'rm -rf "$d"' EXIT && mkdir "$d/hooks" "$d/root" "$d/network" || exit 0
printf '[engine]\nlock_type = "file"\n[network]\nnetwork_config_dir = "%s/network"\n' "$d" >"$d/conf"
case $(podman --version) in *' 4.'[0-5].*) c=CONTAINERS_CONF ;; *) c=CONTAINERS_CONF_OVERRIDE ;; esac
env "$c=$d/conf" timeout 20 podman --root "$d/storage" --runroot "$d/run" --tmpdir "$d/tmp" --storage-driver vfs \
  --runtime /bin/false --cgroup-manager cgroupfs --events-backend none --hooks-dir "$d/hooks" --log-level debug \
  run --rm --rootfs --network none --ipc host --cgroups no-conmon --log-driver none \
  --device nvidia.com/gpu=all --device gpuprov.invalid/none=none "$d/root" true 2>&1 </dev/null |
  grep -E 'CDI (registry|devices)' | sed 's/^/podman /'; true""",
    parse_answers,
    "podman --log-level debug run --rm --device nvidia.com/gpu=all IMAGE true",
)
DEVICES = Probe(
    "gpu_devices",
    """command -v nvidia-smi >/dev/null || exit 0
nvidia-smi -L 2>&1 && nvidia-smi --query-gpu=index,mig.mode.current --format=csv,noheader 2>/dev/null; true""",
    parse_devices,
    "nvidia-smi -L",
)
# Users of the host by name, without those of the system.
USERS = Probe(
    "rootless_users",
    r"""r() { if [ "$(id -u)" = 0 ]
  then setpriv --reuid="$1" --regid="$2" --clear-groups timeout 5 head -c 1000000 "$3"; else
  head -c 1000000 "$3"; fi </dev/null 2>/dev/null; }
getent passwd | while IFS=: read -r n _ i g _ h _; do
  [ "$i" -ge 1000 ] 2>/dev/null && [ "$i" -lt 65000 ] || continue
  s=0; l=0; c=0
  grep -qsE "^($n|$i):" /etc/subuid && s=1
  [ -e "/var/lib/systemd/linger/$n" ] && l=1
  [ -f "$h/.config/docker/daemon.json" ] && c=1
  echo "@user $n|$h|$s|$l|$c"
  [ $c = 1 ] && { r "$i" "$g" "$h/.config/docker/daemon.json" | sed 's/^/ /'; echo; }
done; true""",
    parse_users,
    "cat /etc/subuid; ls /var/lib/systemd/linger; cat /home/*/.config/docker/daemon.json",
)
