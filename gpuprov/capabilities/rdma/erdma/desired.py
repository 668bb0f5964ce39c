"""The unit that loads eRDMA's driver and sets the MTU at boot, the driver's options, and the current differences from
them."""

from collections.abc import Iterator

from gpuprov.capabilities.answers import BEFORE, HEADER
from gpuprov.capabilities.at_boot import COMMON, command, unit
from gpuprov.capabilities.rdma.at_boot import RDMA, UNITS, AtBoot, configuration
from gpuprov.capabilities.rdma.erdma.decision import Decision, address, decide
from gpuprov.capabilities.rdma.erdma.state import Ctx, lines, list_parameters, vendor
from gpuprov.capabilities.rdma.installers import Fetch
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.facts.probes.rdma.erdma import ERDMA
from gpuprov.host_code.at_boot import erdma_state as onhost
from gpuprov.host_code.json_members import Json

UNIT = unit(
    f"""
Description=eRDMA: its driver, and the MTU of its network interfaces
Wants=network-online.target
After=network-online.target systemd-modules-load.service openibd.service
{BEFORE}""",
    f"ExecStart={command(RDMA, 'erdma', 'apply', 60)}\nTimeoutStartSec=150",
)
MODULES = (*COMMON, "erdma_state", "erdma")
SERVICE = catalogue.UNIT
FILES = (f"{UNITS}/{SERVICE}", catalogue.CONFIG, catalogue.OPTIONS)


def at_boot(ctx: Ctx) -> AtBoot | None:
    """Return the unit; None if the fabric is not eRDMA."""
    if ctx.fragment.fabric != "erdma":
        return None
    about = f"What {catalogue.UNIT} reads back of the driver, and the MTU that it sets."
    files = {catalogue.CONFIG: configuration(lines(ctx.fragment), about)}
    if vendor(ctx.fragment):
        files[catalogue.OPTIONS] = options(list_parameters(ctx.fragment))
    return AtBoot(
        unit=SERVICE,
        text=UNIT,
        modules=MODULES,
        files=files,
        differs=", ".join(differences(ctx)),
        speaks="erdma",
        fix="end who holds the devices, or reboot, and apply again",
    )


def fetch(ctx: Ctx) -> Fetch | None:
    """Return the installer to fetch; None if it is not to run."""
    decision = decide(ctx.fragment, ctx.facts)
    if not decision.run:
        return None
    url = address(ctx.fragment)
    return Fetch(
        of="rdma.erdma",
        url=url,
        file="" if url else ctx.fragment.erdma.file,
        path=archive(decision),
        sha256=decision.sha256,
        most=catalogue.MOST,
        fix="the right file, or the sha256 that sha256sum says of it, compared with what Alibaba publishes",
        unreachable="correct the url, the network, or the host's proxy; mirrors.cloud.aliyuncs.com answers inside "
        "Alibaba Cloud only",
    )


def archive(decision: Decision) -> str:
    """Return the path of the installer on the host until it has run."""
    return f"{catalogue.CACHE}/{decision.sha256}.tar.gz"


def software(ctx: Ctx, decision: Decision) -> dict[str, Json]:
    """Return the arguments of step erdma. `due`: some kernel lacks the driver, or has another installer's. `run`: run
    the installer, from `archive`. `build`: kernels for which DKMS builds it."""
    return {
        "due": decision.run or bool(decision.lacking),
        "run": decision.run,
        "archive": archive(decision) if decision.run else "",
        "sha256": decision.sha256,
        "named": decision.named,
        "mode": "compat" if ctx.fragment.erdma.compat_mode else "iwarp",
        "kernels": [kernel.release for kernel in ctx.facts.get(ERDMA).kernels],
        "build": list(decision.build),
        "environment": decision.environment,
    }


def options(values: dict[str, str]) -> str:
    """Return the text of gpuprov's own file in modprobe.d."""
    given = " ".join(f"{name}={value}" for name, value in values.items())
    about = f"# A file of gpuprov's own: {catalogue.VENDOR_OPTIONS} is the driver package's, and has its softdep."
    return f"{HEADER}{about}\noptions erdma {given}\n{catalogue.SOFTDEP}\n"


def differences(ctx: Ctx) -> Iterator[str]:
    """Yield how the driver and the interfaces differ from the spec."""
    state, mtu = ctx.facts.get(ERDMA).onhost, catalogue.get_mtu(ctx.fragment.erdma.mtu)
    yield from map(str, onhost.compare_driver(state, list_parameters(ctx.fragment)))
    yield from (str(difference) for _, difference in onhost.compare_mtu(state, mtu))


def outruns_images(ctx: Ctx) -> bool:
    """Return whether the options in modprobe.d are to be written or removed: an older initramfs that holds erdma would
    load it as it was built. It does not depend on what this run changed, but on the files' times: if a later role
    failed, that run did not rebuild the images."""
    block, state = ctx.fragment, ctx.facts.get(ERDMA)
    return block.fabric == "erdma" or catalogue.OPTIONS in dict(state.files)
