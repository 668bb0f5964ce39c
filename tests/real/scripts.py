"""Probes whose scripts are our own composition, run whole over a capture: shell and parser both meet what hosts
print."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Container, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.generated import generated_checks
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.facts.probes import acceptance, rdma
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.containers import kubernetes
from gpuprov.facts.probes.driver import dkms_logs, driver_packages, leftovers, nvidia, runfile
from gpuprov.facts.probes.gpus import dcgm, fabric, health_links, imex, mig, mps, topology, vgpu
from gpuprov.facts.probes.host import hardware, house, pci, pcie, system, systemd, virtualization
from gpuprov.facts.probes.host.contents import Contents
from gpuprov.facts.probes.kernel import boot, initramfs, modules, signing
from gpuprov.facts.probes.rdma import far_ends, gpudirect, nccl, ofed, surroundings
from gpuprov.facts.probes.software import packages, repositories
from gpuprov.spec.model import HostSpec
from tests.real import places as there
from tests.real import places_bus as bus
from tests.real import places_more as more
from tests.real.commands import name_parser
from tests.real.places import Place, at, by
from tests.real.tree import Tree

T = TypeVar("T")
Facts = dict[str, Any]


class Script(NamedTuple, Generic[T]):
    """`needs`: pieces of which one at least must be there: names of commands, or the beginning of a file's path.
    `tells`: the facts; it is run where a capture says what is true of one of them."""

    probe: Probe[T]
    facts: Callable[[T], Facts]
    needs: tuple[str, ...]
    tells: tuple[str, ...]

    @property
    def parser(self) -> str:
        return name_parser(self.probe)

    def wants(self, pieces: Iterable[str], true: Container[str]) -> bool:
        """`pieces`: names of commands, and paths of files."""
        return any(fact in true for fact in self.tells) and any(
            name == need or (need.startswith("/") and name.startswith(need)) for name in pieces for need in self.needs
        )


OPENSM = HostSpec(name="gpu1", capabilities={"rdma": Rdma(fabric="infiniband")})
CONTENTS = next(one for one in generated_checks(BY_NAME["rdma"])[0].probes if one.name == "contents")
"""With what this spec has it look at."""


def _opensm(found: Contents) -> Facts:
    unit = found.units["opensm.service"]
    return {"opensm": f"{unit.load} {unit.active} {unit.file}"}


def _plain(found: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(found))


PLACES: dict[str, Place] = {
    "cat": there.file_named,
    "modinfo": there.modinfo,
    "dkms-status": there.dkms_status,
    "dpkg-l": more.dpkg_list,
    "rpm-qa": there.kernels_of_packages,
    "lsmod": more.lsmod,
    "systemctl-show": there.systemctl_show,
    "systemctl-status": there.systemctl_status,
    "systemctl-status-gridd": there.systemctl_status,
    "systemctl-status-openibd": there.systemctl_status,
    "systemctl-status-opensm": there.systemctl_status,
    "ls-libraries": there.ls_libraries,
    "journal": more.journal,
    "ls-l": there.ls_long,
    "lsof": there.lsof,
    "fuser-v": there.fuser,
    "df-k": there.df,
    "mokutil-list-enrolled": there.mokutil("--list-enrolled"),
    "mokutil-test-key": more.key_tested,
    "od-secure-boot": there.secure_boot,
    "libraries": there.libraries,
    "cpupower": there.cpupower,
    "meminfo": there.meminfo,
    "systemd-detect-virt": there.detect_virt,
    "sysctl-a": by("sysctl", "-a"),
    "hostnamectl": there.hostnamectl,
    "ip-addr": there.addresses,
    "grubby": there.grubby,
    "os-release": at("/etc/os-release"),
    "kubectl-node": more.kubectl_node,
    "ibstat": bus.ibstat,
    "ibv-devinfo": bus.ibv_devinfo,
    "show-gids": bus.show_gids,
    "ibdev2netdev": bus.ibdev2netdev,
    "rdma-statistic": more.rdma_statistic,
    "show-counters": more.show_counters,
    "lldpctl": by("lldpctl", "-f*"),
    "lspci-vv": bus.lspci_verbose,
    "lspci-nn": bus.lspci_verbose,
    "nccl-topo": bus.nccl_topology,
    "ofed-info": by("ofed_info", "-s"),
    "dmesg": more.dmesg,
    "mig-capabilities": more.mig_capabilities,
    "mig-device-files": more.mig_device_files,
    "ps": more.processes,
    "mps-servers": more.mps_servers,
    "proc-devices": at("/proc/devices"),
    "apt-cache-show": more.apt_cache_show,
    "apt-config-dump": more.apt_config,
    "programs": more.programs,
    "ib-write-bw-help": by("ib_write_bw", "--help"),
    "systemctl-status-imex": more.imex_status,
    "lsinitrd": more.initrd,
    "lsinitramfs": more.initrd,
    "ls-folder": more.folder,
    "dkms-make-log": more.dkms_log,
}
"""How a piece becomes part of a host."""


def _kernels(found: tuple[modules.KernelModules, ...]) -> Facts:
    return {"kernels": {one.release: _plain(one) for one in found}}


def _rdma(found: tuple[rdma.RdmaDevice, ...]) -> Facts:
    return {
        "rdma": {
            one.name: {
                "identifier": one.identifier,
                "firmware": one.firmware,
                "soft": one.soft,
                "netdevs": list(one.netdevs),
                "ports": {
                    str(port.number): {
                        "state": port.state,
                        "layer": port.link_layer,
                        "rate": port.rate,
                        "lid": port.lid,
                        "sm_lid": port.sm_lid,
                        "gids": {
                            str(gid.index): f"{gid.kind} {gid.ipv4 or gid.gid} {gid.netdev}".strip()
                            for gid in port.gids
                        },
                    }
                    for port in one.ports
                },
            }
            for one in found
        }
    }


def _pcie(found: pcie.Pcie) -> Facts:
    return {
        "pcie": {
            address: {
                "kind": one.kind,
                "driver": one.driver,
                "node": one.node,
                "above": list(one.above),
                "readable": one.readable,
                "read_request": one.read_request,
                "relaxed": one.relaxed,
                "acs": one.acs,
            }
            for address, one in found.functions.items()
        }
    }


def _tree(found: topology.PciTree) -> Facts:
    return {
        "pci_tree": {
            address: {
                "bridges": list(one.bridges),
                "identifier": one.identifier,
                "node": one.numa_node,
                "link": f"{one.link.speed:g} x{one.link.width}",
                "best": f"{one.link.max_speed:g} x{one.link.max_width}",
                "rdma": one.rdma,
            }
            for address, one in found.functions.items()
        }
    }


def _functions(found: tuple[virtualization.GpuFunction, ...]) -> Facts:
    return {
        "gpu_functions": {
            one.address: {
                "kind": one.kind,
                "regions": {str(region.number): f"{region.size >> 20}M" for region in one.regions if region.size > 1},
                "without_address": list(one.without_address()),
            }
            for one in found
        }
    }


def _signing(found: signing.ModuleSigning) -> Facts:
    return {
        "dkms_settings": found.settings,
        "signers": {f"{one.kernel} {one.module}": f"{one.signer} {one.serial}".strip() for one in found.modules},
    }


def _gpudirect(found: gpudirect.Gpudirect) -> Facts:
    return {
        "peer": {
            "loaded": found.loaded,
            "holders": list(found.holders),
            "ofed": found.ofed,
            "log": list(found.log),
            "kernels": {one.release: _plain({"modules": one.modules, "open": one.open}) for one in found.kernels},
        }
    }


def _ofed(found: ofed.Ofed) -> Facts:
    return {
        "ofed": found.release,
        "openibd": f"{found.load} {found.active} {found.file}".strip(),
        "ofed_settings": found.settings,
        "ofed_skipped": list(found.skipped),
    }


def _gridd(found: vgpu.Gridd) -> Facts:
    return {
        "gridd": {
            "installed": found.installed,
            "settings": found.settings,
            "unit": f"{found.load} {found.active} {found.file}".strip(),
            "configured": found.configured,
            "log": list(found.log)[-1:],
        }
    }


def _node(found: kubernetes.Node) -> Facts:
    return {
        "labels": found.labels,
        "allocatable": found.allocatable,
        "kubelets": {one.name: f"{one.active} {one.file}" for one in found.services},
        "kubectl_says": found.complaint,
    }


SCRIPTS = (
    Script(boot.SYSCTL, lambda found: {"sysctl": found}, ("sysctl-a",), ("sysctl",)),
    Script(boot.LOGIN_LIMITS, lambda found: {"login_limits": found}, ("/etc/security/",), ("login_limits",)),
    Script(
        boot.MODULES_LOAD,
        lambda found: {"modules_load": sorted(found)},
        ("/etc/modules", "/usr/lib/modules-load.d"),
        ("modules_load",),
    ),
    Script(
        boot.BOOT_ENTRIES,
        lambda found: {"boot_entries": list(found)},
        ("grubby", "/boot/loader/", "/boot/grub"),
        ("boot_entries",),
    ),
    Script(systemd.DEFAULT_LIMITS, lambda found: {"default_limits": found}, ("systemctl-show",), ("default_limits",)),
    Script(
        systemd.SYSTEMD_UNITS,
        lambda found: {
            "units": {name: f"{unit.load} {unit.active} {unit.file}".strip() for name, unit in found.items()}
        },
        ("systemctl-status",),
        ("units",),
    ),
    Script(
        dcgm.UNITS,
        lambda found: {
            "dcgm_units": {name: f"{unit.load} {unit.active} {unit.file}".strip() for name, unit in found.items()}
        },
        ("systemctl-status",),
        ("dcgm_units",),
    ),
    Script(modules.KERNELS, _kernels, ("dkms-status", "modinfo"), ("kernels",)),
    Script(modules.BUILT_IN, lambda found: {"built_in": sorted(found)}, ("/lib/modules/",), ("built_in",)),
    Script(
        nvidia.LIBRARIES,
        lambda found: {"libraries": found},
        ("ldconfig-p", "libraries", "ls-libraries"),
        ("libraries",),
    ),
    Script(
        leftovers.LIBRARIES,
        lambda found: {"library_paths": list(found)},
        ("libraries", "ls-libraries"),
        ("library_paths",),
    ),
    Script(
        dkms_logs.DKMS_LOGS,
        lambda found: {"build_logs": [_plain(one) for one in found]},
        ("dkms-make-log",),
        ("build_logs",),
    ),
    Script(
        hardware.FIRMWARE,
        lambda found: {"board_firmware": {one.board: one.version for one in found}},
        ("ibstat", "ibv-devinfo"),
        ("board_firmware",),
    ),
    Script(
        pci.PASSTHROUGH,
        lambda found: {
            "passthrough": {
                one.address: f"{one.driver or 'none'} {one.group or 'none'}" for one in found.state.functions
            }
        },
        ("lspci-vv", "lspci-nn"),
        ("passthrough",),
    ),
    Script(
        nvidia.CLIENTS,
        lambda found: {"clients": {str(one.pid): one.command for one in found}},
        ("lsof", "fuser-v"),
        ("clients",),
    ),
    Script(
        mig.HOLDERS,
        lambda found: {"holders": {str(one.pid): [one.command, *sorted(one.files)] for one in found}},
        ("lsof", "fuser-v"),
        ("holders",),
    ),
    Script(
        mig.CAPABILITIES,
        lambda found: {"capabilities": {one.path: f"{one.node} {one.expected} {one.mode}".strip() for one in found}},
        ("mig-capabilities", "mig-device-files"),
        ("capabilities",),
    ),
    Script(
        mps.MPS,
        lambda found: {
            "mps": {str(one.pid): f"{one.command} {one.protocol}" for one in found.daemons},
            "mps_servers": {str(one.pid): [server.pid for server in one.servers] for one in found.daemons},
        },
        ("ps",),
        ("mps",),
    ),
    Script(
        acceptance.TOOLS,
        lambda found: {"tools": found.programs, "tool_flags": list(found.flags)},
        ("ib-write-bw-help", "programs"),
        ("tools", "tool_flags"),
    ),
    Script(
        acceptance.NETWORK,
        lambda found: {"addresses": {name: list(all_) for name, all_ in found.addresses.items()}},
        ("ip-addr",),
        ("addresses",),
    ),
    Script(
        hardware.FREQUENCY,
        lambda found: {"governors": [[one.governor, *one.available] for one in found.policies]},
        ("cpupower",),
        ("governors",),
    ),
    Script(
        hardware.HUGEPAGES,
        lambda found: {"hugepages": {str(size): count for size, count in found.items()}},
        ("meminfo",),
        ("hugepages",),
    ),
    Script(hardware.DEFAULT_HUGEPAGE, lambda found: {"default_hugepage": found}, ("meminfo",), ("default_hugepage",)),
    Script(
        boot.BOOTLOADER,
        lambda found: {"without_bootloader": dict.fromkeys(found, "absent")},
        ("ls-folder", "grubby"),
        ("without_bootloader",),
    ),
    Script(
        initramfs.INITRAMFS,
        lambda found: {"initramfs": {one.release: sorted(one.modules) for one in found if one.readable}},
        ("lsinitrd", "lsinitramfs"),
        ("initramfs",),
    ),
    Script(initramfs.DRACUT, lambda found: {"dracut": found}, ("lsinitrd", "lsinitramfs"), ("dracut",)),
    Script(packages.LOCKING, lambda found: {"not_locking": found}, ("apt-config-dump",), ("not_locking",)),
    Script(
        driver_packages.PRECOMPILED,
        lambda found: {"precompiled": _plain(found)},
        ("apt-cache-show", "dpkg-l"),
        ("precompiled",),
    ),
    Script(
        repositories.REPOSITORIES,
        lambda found: {"sources": [f"{one.file} {one.url} {one.signed_by} {one.gpgcheck}" for one in found["sources"]]},
        ("/etc/apt/sources", "/etc/yum.repos.d/"),
        ("sources",),
    ),
    Script(
        runfile.RUNFILE,
        lambda found: {"open_modules": found.open, "runfile_programs": list(found.programs)},
        ("modinfo", "programs"),
        (
            "open_modules",
            "runfile_programs",
        ),
    ),
    Script(house.LEFTOVERS, lambda found: {"leftovers": list(found)}, ("programs",), ("leftovers",)),
    Script(house.SECURE_BOOT, lambda found: {"secure_boot": found}, ("od-secure-boot",), ("secure_boot",)),
    Script(house.DKMS_KEY_ENROLLED, lambda found: {"dkms_key": _plain(found)}, ("mokutil-test-key",), ("dkms_key",)),
    Script(
        signing.MODULE_SIGNING,
        _signing,
        ("modinfo",),
        (
            "dkms_settings",
            "signers",
        ),
    ),
    Script(signing.ENROLLED, lambda found: {"certificates": len(found)}, ("mokutil-list-enrolled",), ("certificates",)),
    Script(rdma.DEVICES, _rdma, ("ibstat", "ibv-devinfo", "show-gids", "ibdev2netdev"), ("rdma",)),
    Script(
        health_links.PORT_ERRORS,
        lambda found: {
            "port_errors": {
                one.name: {
                    "downed": one.downed,
                    "errors": one.errors,
                    "transport": {name: count for name, count in (one.transport or {}).items() if count},
                }
                for one in found
            }
        },
        ("rdma-statistic", "show-counters"),
        ("port_errors",),
    ),
    Script(
        far_ends.FAR_ENDS,
        lambda found: {"far_ends": {name: str(end) for name, end in found.netdevs.items()}},
        ("lldpctl",),
        ("far_ends",),
    ),
    Script(
        surroundings.HOST,
        lambda found: {
            "rdma_modules": found.modules,
            "netdevs": {one.name: one.state for one in found.netdevs},
        },
        ("ibdev2netdev", "lsmod"),
        (
            "rdma_modules",
            "netdevs",
        ),
    ),
    Script(CONTENTS.of(OPENSM), _opensm, ("systemctl-status-opensm",), ("opensm",)),
    Script(pcie.PCIE, _pcie, ("lspci-vv", "lspci-nn"), ("pcie",)),
    Script(topology.PCI, _tree, ("lspci-vv", "lspci-nn", "nccl-topo"), ("pci_tree",)),
    Script(virtualization.FUNCTIONS, _functions, ("lspci-vv", "lspci-nn"), ("gpu_functions",)),
    Script(virtualization.MACHINE, lambda found: {"machine": _plain(found)}, ("hostnamectl",), ("machine",)),
    Script(vgpu.GRIDD, _gridd, ("/etc/nvidia/gridd.conf", "systemctl-status-gridd"), ("gridd",)),
    Script(
        gpudirect.GDRCOPY,
        lambda found: {"gdrcopy": _plain(found)},
        ("modinfo", "ls-l", "proc-devices", "lsmod"),
        ("gdrcopy",),
    ),
    Script(gpudirect.GPUDIRECT, _gpudirect, ("lsmod", "modinfo"), ("peer",)),
    Script(
        ofed.OFED,
        _ofed,
        ("ofed-info", "/etc/infiniband/", "systemctl-status-openibd"),
        (
            "ofed",
            "openibd",
            "ofed_settings",
            "ofed_skipped",
        ),
    ),
    Script(
        kubernetes.NODE,
        _node,
        ("kubectl-node", "systemctl-status-kubelet"),
        (
            "labels",
            "allocatable",
            "kubelets",
            "kubectl_says",
        ),
    ),
    Script(nccl.NCCL, lambda found: {"nccl": _plain(found)}, ("/etc/nccl.conf", "nccl-plugins"), ("nccl",)),
    Script(
        nccl.NCCL_TOPOLOGY,
        lambda found: {"topology_file": f"{found.path} {'absent' if found.text is None else 'there'}".strip()},
        ("/etc/nccl.conf",),
        ("topology_file",),
    ),
    Script(system.SPACE, lambda found: {"space": found}, ("df-k",), ("space",)),
    Script(system.CONTAINER, lambda found: {"container": found}, ("systemd-detect-virt",), ("container",)),
    Script(
        fabric.SUBNET_KERNEL, lambda found: {"subnet_modules": sorted(found.modules)}, ("lsmod",), ("subnet_modules",)
    ),
    Script(
        imex.IMEX,
        lambda found: {
            "imex_unit": f"{found.load} {found.active} {found.file}".strip(),
            "imex_members": None if found.nodes is None else list(found.nodes),
        },
        ("systemctl-status-imex", "/etc/nvidia-imex/nodes_config.cfg"),
        ("imex_unit", "imex_members"),
    ),
)


def pieces_of(commands: dict[str, str], names: Iterable[str]) -> set[str]:
    """What a capture holds: the name of each file's command and, of a file that was shown, its path."""
    shown = {commands[name].split()[-1] for name in names if name.startswith("cat.")}
    return {name.partition(".")[0] for name in names} | shown


@cache
def printed(
    script: Script[Any], folder: Path, kernel: str, family: str, commands: tuple[tuple[str, str], ...]
) -> Output:
    """What the script prints on the host that this capture tells of."""
    lines = dict(commands)
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as made:
        tree = Tree(Path(made), kernel)
        tree.file("/etc/os-release", f"ID={family}\n")
        for path in sorted(folder.iterdir(), key=lambda one: (one.name.startswith("ls-l"), one.name)):
            place = PLACES.get(path.name.partition(".")[0])
            if place:
                place(tree, path.read_text(encoding="utf-8"), lines.get(path.name, ""))
        return tree.run(script.probe)
