"""MIG as NVML reports it, read by a Python on the host; the units that restore it at boot; device files open to users
without root."""

import re
from pathlib import Path

import msgspec

from gpuprov.core.safe_parse import is_whole, parse_typed_json
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.systemd import UNIT_OF, build_units_probe
from gpuprov.host_code.mig.nvml import derive_profile_name

UNIT = "gpuprov-mig.service"
# NVIDIA's own unit: https://github.com/NVIDIA/mig-parted/tree/main/deployments/systemd
MANAGER = "nvidia-mig-manager.service"


class Compute(msgspec.Struct, frozen=True, kw_only=True):
    """A compute instance; to its users a MIG device, `number` of its GPU."""

    id: int
    slices: int
    start: int = 0
    number: int | None = None
    # Empty where NVML lists no such device.
    uuid: str = ""


class GpuInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance; `start` and `size` in memory slices."""

    id: int
    # Its profile's id.
    kind: int = -1
    profile: str
    start: int
    size: int = 0
    compute: tuple[Compute, ...] = ()


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A profile of the GPU by NVML, under nvidia-smi's id. `starts` may be empty if the driver does not report them."""

    name: str
    id: int
    slices: int
    count: int
    size: int = 0
    starts: tuple[int, ...] = ()
    # `number`, `memory`: NVML's own number and MiB, if the driver reports no name.
    number: int = -1
    memory: int = 0


class Process(msgspec.Struct, frozen=True):
    """A process with a CUDA context."""

    pid: int
    # `instance`, `part`: the ids of its GPU instance and compute instance.
    instance: int | None = None
    part: int | None = None


class MigGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU; `index` in the order of PCI addresses, `number` as NVML counts. A GPU that is not `capable` has no MIG."""

    index: int
    number: int
    minor: int
    address: str
    uuid: str
    name: str
    pci: str
    subsystem: str
    capable: bool
    # `current`, `pending`: whether it is in MIG mode, and whether it will be after its next reset.
    current: bool = False
    pending: bool = False
    # Bytes, if they name its profiles.
    memory: int = 0
    profiles: tuple[Profile, ...] = ()
    instances: tuple[GpuInstance, ...] = ()
    processes: tuple[Process, ...] = ()

    @property
    def label(self) -> str:
        """The GPU's name in messages."""
        return f"GPU {self.index} ({self.address})"


class MigState(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs, or the error."""

    gpus: tuple[MigGpu, ...] = ()
    # GPUs that do not answer, each with NVML's error.
    unread: tuple[str, ...] = ()
    complaint: str = ""


class CapabilityFile(msgspec.Struct, frozen=True, kw_only=True):
    """A driver capability: `path` below /proc/driver/nvidia/capabilities, and the mode of its device file."""

    path: str
    node: str
    # The mode that the driver specifies, as four octal digits.
    expected: str
    # Empty without a device file.
    mode: str = ""
    owner: str = ""
    # The driver is configured to leave the file as the administrator made it.
    kept: bool = False

    def instance(self, minor: int) -> tuple[int, int | None] | None:
        """Return the ids of the GPU instance, and of the compute instance in it, on the GPU with this minor number."""
        # /proc/driver/nvidia/capabilities/gpu0/mig/gi2/access
        # /proc/driver/nvidia/capabilities/gpu0/mig/gi2/ci0/access
        match = re.fullmatch(rf"gpu{minor}/mig/gi(\d+)/(?:ci(\d+)/)?access", self.path)
        return (int(match[1]), int(match[2]) if match[2] else None) if match else None


class Holder(msgspec.Struct, frozen=True):
    """A process that has NVIDIA's device files open."""

    pid: int
    command: str
    # Its systemd unit or container scope, empty if unknown.
    unit: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.command} (pid {self.pid}{', ' + self.unit if self.unit else ''})"


class User(msgspec.Struct, frozen=True):
    """A process on a GPU (by index): on all of it, on one GPU instance, or on one compute instance (`part`) of that."""

    holder: Holder
    gpu: int
    instance: int | None = None
    part: int | None = None
    # It has a CUDA context, or appears to have one; else it only has the GPU's device file open.
    computes: bool = True


def parse_state(output: Output) -> MigState:
    if output.status == 127:
        return MigState(complaint="python3 is not installed, and NVML is asked by it")
    if not output.text.strip():
        message = " ".join(output.error.split())
        return MigState(complaint=message or f"the reader of NVML ended with status {output.status}")
    mig_state = parse_typed_json(output.text, MigState)
    return msgspec.structs.replace(
        mig_state, gpus=tuple(_name_profiles(gpu) if gpu.memory else gpu for gpu in mig_state.gpus)
    )


def _name_profiles(gpu: MigGpu) -> MigGpu:
    """Return the GPU with names for its profiles, if its driver does not report them."""
    names = {
        profile.id: profile.name or derive_profile_name(profile.number, profile.slices, profile.memory, gpu.memory)
        for profile in gpu.profiles
    }
    return msgspec.structs.replace(
        gpu,
        profiles=tuple(msgspec.structs.replace(profile, name=names[profile.id]) for profile in gpu.profiles),
        instances=tuple(msgspec.structs.replace(instance, profile=names[instance.kind]) for instance in gpu.instances),
    )


def parse_capabilities(output: Output) -> tuple[CapabilityFile, ...]:
    files = []
    for line in output.text.splitlines():
        path, minor, mode, modify, node_mode, owner = line.split("|")
        expected = f"{int(mode):04o}" if is_whole(mode) else ""
        node = f"/dev/nvidia-caps/nvidia-cap{minor}"
        shown = node_mode.rjust(4, "0") if node_mode else ""
        files.append(
            CapabilityFile(path=path, node=node, expected=expected, mode=shown, owner=owner, kept=modify == "0")
        )
    return tuple(files)


def parse_holders(output: Output) -> tuple[Holder, ...]:
    holders: dict[int, Holder] = {}
    for line in output.text.splitlines():
        pid, files, rest = line.split("|", 2)
        command, _, unit = rest.rpartition("|")
        holders[int(pid)] = Holder(int(pid), command, unit, tuple(files.split()))
    return tuple(holders.values())


def users(state: MigState, holders: tuple[Holder, ...], capabilities: tuple[CapabilityFile, ...]) -> tuple[User, ...]:
    """List the users of GPUs and instances: processes that NVML lists, and holders of the device files."""
    known = {holder.pid: holder for holder in holders}
    users_by_place: dict[tuple[int, int, int | None, int | None], User] = {}
    for gpu in state.gpus:
        for process in gpu.processes:
            holder = known.get(process.pid, Holder(process.pid, "process", "", ()))
            key = (process.pid, gpu.index, process.instance, process.part)
            users_by_place[key] = User(holder, gpu.index, process.instance, process.part)
        nodes = {capability.node: ids for capability in capabilities if (ids := capability.instance(gpu.minor))}
        for holder in holders:
            for ids in (nodes[file] for file in holder.files if file in nodes):
                users_by_place.setdefault((holder.pid, gpu.index, *ids), User(holder, gpu.index, *ids))
            if f"/dev/nvidia{gpu.minor}" in holder.files:
                computes = "/dev/nvidia-uvm" in holder.files
                users_by_place.setdefault(
                    (holder.pid, gpu.index, None, None), User(holder, gpu.index, computes=computes)
                )
    return tuple(users_by_place.values())


READER = Path(__file__).with_name("mig_reader.py").read_text(encoding="utf-8")
STATE = Probe(
    "mig",
    f"""p=$(command -v python3 || command -v /usr/libexec/platform-python) || exit 127
"$p" - <<'READER_ENDS'
{READER}READER_ENDS""",
    parse_state,
    "nvidia-smi -L; nvidia-smi mig -lgi; nvidia-smi mig -lci; nvidia-smi "
    "--query-gpu=mig.mode.current,mig.mode.pending --format=csv",
    speaks=True,
    knows_missing=True,
)
UNITS = build_units_probe("mig_units", (MANAGER, UNIT), f"systemctl status {MANAGER} {UNIT}")
# The driver makes a file here for each instance, and says in it which device file opens it:
# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/device-nodes-and-capabilities.html
CAPABILITIES = Probe(
    "mig_capabilities",
    """cd /proc/driver/nvidia/capabilities 2>/dev/null || exit 0
for f in gpu*/mig/gi*/access gpu*/mig/gi*/ci*/access; do
  [ -r "$f" ] || continue
  n=""; m=""; y=""
  while read -r k v; do case $k in DeviceFileMinor:) n=$v;; DeviceFileMode:) m=$v;; DeviceFileModify:) y=$v;; esac
    done < "$f"
  echo "$f|$n|$m|$y|$(stat -c '%a|%U:%G' /dev/nvidia-caps/nvidia-cap$n 2>/dev/null || echo '|')"
done; true""",
    parse_capabilities,
    "ls -l /dev/nvidia-caps; cat /proc/driver/nvidia/capabilities/gpu*/mig/gi*/access",
)
# Processes with NVIDIA's device files open. In a container sharing the machine's kernel it sees only the container's
# own.
HOLDERS = Probe(
    "mig_holders",
    UNIT_OF
    + """find /proc/[0-9]*/fd -lname '/dev/nvidia*' -printf '%h %l\\n' 2>/dev/null | sort -u | awk '
  { f[$1] = f[$1] " " $2 } END { for (p in f) print p f[p] }' | while read -r p files; do
  p=${p%/fd}; c=""; read -r c < "$p/comm" || continue
  u=$(unit_of "$p/cgroup")
  echo "${p#/proc/}|$files|$c|$u"
done""",
    parse_holders,
    "fuser -v /dev/nvidia* /dev/nvidia-caps/*; nvidia-smi",
)
