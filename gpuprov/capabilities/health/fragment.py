"""The `health` block."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from gpuprov.capabilities.base import Context
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment, HostSpec

HERE = "health"
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


Board = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9]([ -~]{0,62}[!-~])?$")]
Version = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]


class FirmwareVersions(Fragment, frozen=True):
    """Versions of firmware by the board that must have them; other boards are not judged by it."""

    vbios: Annotated[
        dict[Board, Version],
        describe("of GPUs, by product name or board part number, as nvidia-smi -q shows them (692-2G520-0200-000)"),
    ] = {}
    inforom: Annotated[dict[Board, Version], describe("image version of GPUs, by the same names")] = {}
    nvswitch: Annotated[dict[Board, Version], describe("of NVSwitches before generation 4, by PCI id (10de:22a3)")] = {}
    adapter: Annotated[
        dict[Board, Version],
        describe("of network adapters and BlueField, by PSID or type: board_id (MT_0000000838) or hca_type (MT4129)"),
    ] = {}


class Health(Fragment, frozen=True):
    """Monitoring of a host in production: errors of its GPUs, links and kernel; read, never changed. `gpuprov health`
    shows whether it is fit for work, and the action that NVIDIA recommends.

    Features that a GPU lacks (ECC, row remapping) are not judged; values that cannot be read are not proven.
    """

    since: Annotated[
        str,
        describe(
            "boot, a span (90m, 24h, 7d) or a time (2026-11-20T14:02, in the time zone of who runs gpuprov, or with "
            "Z or +01:00). From when on the kernel log is judged; errors that a reboot has fixed since then are past",
            pattern=(
                r"^(boot|[1-9][0-9]{0,5}[smhd]|[0-9]{4}-[0-9]{2}-[0-9]{2}"
                r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?)?)$"
            ),
        ),
    ] = "boot"
    ignored_xids: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=999)], ...],
        describe("Xids that are reported and never fail a check, whatever action NVIDIA advises"),
    ] = ()
    program_errors: Annotated[
        Literal["tell", "fail"],
        describe("Whether Xids that only need the program restarted (13, 31, 94, ...) are reported, or fail the check"),
    ] = "tell"
    ecc: Annotated[
        Literal["delivered", "enabled", "any"],
        describe(
            "Whether ECC must be on. With delivered it must where the GPU comes with it on, as those for data "
            "centres do, unless gpu_settings asks for it off; with enabled wherever the GPU has it"
        ),
    ] = "delivered"
    uncorrected_errors: Annotated[
        Count, describe("How many uncorrectable ECC errors since the driver was loaded a GPU may have")
    ] = 0
    remapped_rows: Annotated[
        int,
        describe(
            "From how many rows remapped for uncorrectable errors on a GPU is bad; a remapping that failed always is",
            ge=1,
            le=512,
        ),
    ] = 512
    retired_pages: Annotated[
        int, describe("From how many retired pages on a GPU before Ampere is bad", ge=1, le=64)
    ] = 63
    slowdown: Annotated[
        Literal["refuse", "any"], describe("Whether a GPU that heat, its power supply or its hardware slows down fails")
    ] = "refuse"
    temperature_margin: Annotated[
        int,
        describe(
            "How many degrees Celsius a GPU must at least be below the temperature that slows it down",
            ge=0,
            le=60,
        ),
    ] = 0
    power_cap: Annotated[
        Literal["refuse", "any"],
        describe("Whether a GPU whose power limit in force is below the one that is set fails"),
    ] = "refuse"
    clocks: Annotated[
        Literal["uniform", "any"],
        describe(
            "Whether GPUs of one model must have the same clocks, and none that computes less than half of its "
            "highest one without a reason that the driver names"
        ),
    ] = "uniform"
    left_processes: Annotated[
        Literal["refuse", "any"],
        describe(
            "Whether a process on a GPU fails of whose Slurm job no step runs here, or whose container has lost its "
            "monitor"
        ),
    ] = "refuse"
    stray_memory: Annotated[
        int,
        describe(
            "From how many MiB in use on a GPU, on which no process is, is bad (0: not judged)",
            ge=0,
            le=1_000_000,
        ),
    ] = 1024
    nvlink_errors: Annotated[
        Count, describe("How many replays and recoveries, or errors of NVLink 5, a GPU may have had")
    ] = 0
    pcie_replays: Annotated[
        Count | None, describe("How many PCIe replays a GPU may have had since its reset; left out: not judged")
    ] = None
    link_downed: Annotated[
        Count | None,
        describe(
            "How often a port of an RDMA device may have gone down since its driver was loaded; left out: not judged"
        ),
    ] = None
    port_errors: Annotated[
        Count | None, describe("How many errors each counter of such a port may show; left out: not judged")
    ] = None
    transport_errors: Annotated[
        Count | None,
        describe(
            "How many errors of RDMA's transport each counter of a port may show since its driver was loaded, as "
            "timeouts and retries that ran out; left out: they are reported, not judged"
        ),
    ] = None
    link_error_rates: Annotated[
        Literal["refuse", "any"],
        describe("Whether a port fails whose error counters grow too fast, by the host's own readings"),
    ] = "refuse"
    link_flaps: Annotated[
        int,
        describe(
            "From how many times within 12 hours is bad that the link of an RDMA device's network interface went "
            "down and came back (0: not judged)",
            ge=0,
            le=1000,
        ),
    ] = 3
    cuda_user: Annotated[
        Annotated[str, describe("the name of a user, not root", pattern=r"^(?!root$)[a-z_][a-z0-9_.-]{0,31}$")] | None,
        describe(
            "A user of the host without privileges, as whom CUDA is run on every GPU and MIG device, for a second "
            "and with some hundred MB of its memory (nobody, or one of the site's); left out: not run"
        ),
    ] = None
    firmware: Annotated[
        Literal["uniform", "fleet", "any"],
        describe(
            "Whether GPUs of one model must have one VBIOS and InfoROM image; with fleet, GPUs, NVSwitches and network "
            "adapters must also have the firmware of most hosts of the run with the same board. A corrupt InfoROM "
            "always fails"
        ),
    ] = "uniform"
    firmware_versions: Annotated[
        FirmwareVersions, describe("Firmware that boards must have, whatever other hosts have; left out: not judged")
    ] = FirmwareVersions()
    sockets: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=64)] | None,
        describe("How many CPU sockets the host has; left out: not judged"),
    ] = None
    cores: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=8192)] | None,
        describe("How many cores, without hyper-threads, all its CPUs have; left out: not judged"),
    ] = None
    memory: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=65536)] | None,
        describe("How many GiB of memory the kernel has at least; left out: not judged"),
    ] = None
    swap: Annotated[Literal["any", "none", "present"], describe("Whether the host must have swap, or none")] = "any"
    nvme: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=256)] | None,
        describe("How many NVMe drives the host has; left out: not judged"),
    ] = None
    mounts: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=r"^/([^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f])?$", max_length=255)], ...],
        describe(
            "Folders at which a file system must be mounted, answer and have room (/, /home on NFS); left out: not "
            "judged"
        ),
    ] = ()
    free_space: Annotated[
        int, describe("How many percent of each must at least be free (0: not judged)", ge=0, le=99)
    ] = 10
    free_inodes: Annotated[
        int, describe("How many percent of their inodes must at least be free (0: not judged)", ge=0, le=99)
    ] = 5
    open_files: Annotated[
        int, describe("From how many percent of the kernel's limit of open files on a host is bad", ge=1, le=100)
    ] = 80
    interfaces: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,15}$")], ...],
        describe("Ethernet interfaces that must be there and up, by name"),
    ] = ()


Ctx: TypeAlias = Context[Health]
REMOVED = "nvidia_absent removes the driver, which alone could say it"


def is_driver_removed(host: HostSpec) -> bool:
    """Return whether the spec removes NVIDIA's driver, so that the GPUs say nothing of themselves."""
    return "nvidia_absent" in host.capabilities
