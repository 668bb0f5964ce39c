"""Decision what each kernel of a host needs for the eRDMA driver: a run of the installer, builds, and packages for
both."""

import msgspec

from gpuprov.capabilities.rdma import installers
from gpuprov.capabilities.rdma.erdma.state import checksum, list_parameters, vendor
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.rdma.erdma import BUILD, ERDMA, ErdmaKernel
from gpuprov.facts.probes.rdma.erdma import Erdma as State
from gpuprov.facts.probes.software import packages
from gpuprov.host_code.at_boot.erdma_state import compare_driver

# The build, among the reasons to reload a driver.
BUILT = "the build"
PROBES = (ERDMA, BUILD, packages.PACKAGES, system.OS_RELEASE)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`run`: run the installer at `named`, which has this `sha256`. `lacking`: kernels without the right driver.
    `build`: those of them to build it for, after any other installer has brought its sources. `install`: packages.
    `environment`: variables for the build. `anew`: reasons to reload a loaded driver. `unknown`: the distribution, if
    something is to be built and the packages for that are unknown on it."""

    named: str = ""
    sha256: str = ""
    run: bool = False
    lacking: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    anew: tuple[str, ...] = ()
    unknown: str = ""


def address(block: Rdma) -> str:
    """Return the URL of the installer; empty for a file beside the inventory, and if there is none."""
    return installers.address(block.erdma, catalogue.read_erdma_file())


def decide(block: Rdma, facts: Facts) -> Decision:
    """Decide; a driver that is already in the requested mode stays as it is."""
    if block.fabric != "erdma" or not vendor(block):
        return Decision()
    state, digest, named = facts.get(ERDMA), checksum(block), address(block) or block.erdma.file
    ran = state.record.partition(" ")[0]
    run = bool(named) and (ran != digest or not any(kernel.vendor for kernel in state.kernels))
    lacking = tuple(kernel.release for kernel in state.kernels if not _is_right(kernel, block))
    kind, needs, unknown = family(facts.get(system.OS_RELEASE)), [], ""
    if run or lacking:
        known = [entry for entry in catalogue.read_erdma_file().build if entry.family == kind]
        needs = _needs(known[0].packages, state) if known else []
        unknown = "" if known else facts.get(system.OS_RELEASE).name
    present = {*facts.get(BUILD), *facts.get(packages.PACKAGES), *state.packages}
    install = [name for name in dict.fromkeys([*needs, *block.erdma.packages]) if name not in present]
    return Decision(
        named=named,
        sha256=digest,
        run=run,
        lacking=lacking,
        build=() if named and ran != digest else lacking,
        install=tuple(install),
        environment=environment(block),
        anew=tuple(_list_rebuilt(block, state, built=run or bool(state.running and state.running.release in lacking))),
        unknown=unknown,
    )


def environment(block: Rdma) -> dict[str, str]:
    """Return the environment of the driver's configure-dkms.sh: MAD, which compat mode's rdma_cm needs; the other
    variable as Alibaba's own controller sets it, which removes the parameter use_zeronet."""
    # https://github.com/AliyunContainerService/alibabacloud-erdma-controller internal/drivers/utils.go
    bound = {} if "use_zeronet" in block.erdma.parameters else {"ERDMA_CM_NO_BOUND_IF": "1"}
    return {**bound, **({"ERDMA_FORCE_MAD_ENABLE": "1"} if block.erdma.compat_mode else {})}


def _is_right(kernel: ErdmaKernel, block: Rdma) -> bool:
    return kernel.vendor and (kernel.mad or not block.erdma.compat_mode)


def _needs(forms: tuple[str, ...], state: State) -> list[str]:
    """Return the packages for the build, with headers for each kernel that has none."""
    bare = [kernel.release for kernel in state.kernels if not kernel.headers]
    plain = [form for form in forms if "{kernel}" not in form]
    return plain + [form.replace("{kernel}", release) for form in forms if "{kernel}" in form for release in bare]


def _list_rebuilt(block: Rdma, state: State, *, built: bool) -> list[str]:
    if not state.loaded:
        return []
    values = list_parameters(block)
    return [difference.name for difference in compare_driver(state.onhost, values) if difference.name in values] + [
        BUILT
    ] * built
