"""What reads which output: the one table from a command to the parsers that gpuprov has for it.

A file of a capture is named after its command. What people paste is often the output of a near relative of what a probe
asks; an adapter then brings it into the probe's own form, and adds nothing that the capture does not hold but blanks.
Where that cannot be done, the table says why. Each reading turns what a parser made of an output into facts, which are
compared with what is true.
"""

from __future__ import annotations

import inspect
import re
import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import msgspec

from gpuprov.catalog import find_gpu
from gpuprov.catalog.drivers import find_branch
from gpuprov.facts.captures import adapt, lspci, smi_xml
from gpuprov.facts.probes import acceptance, recorded
from gpuprov.facts.probes.acceptance import outputs
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.containers import container_engines, container_toolkit
from gpuprov.facts.probes.driver import cuda_toolkit, gds, nvidia
from gpuprov.facts.probes.gpus import dcgm, fabric, gpu_health, gpu_settings, gpu_state, health_links, nvlink, vgpu
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.kernel import boot, modules
from gpuprov.facts.probes.rdma import efa, ofed, roce
from gpuprov.facts.probes.software import packages
from gpuprov.rules import engines

Facts = dict[str, Any]


class Reading(NamedTuple):
    """`parser` is a name in gpuprov/facts/probes, or in the catalogue; `facts` runs it on an output and says what it
    found."""

    parser: str
    facts: Callable[[Output], Facts]


def name_parser(probe: Probe[Any]) -> str:
    """MODULE.FUNCTION of its parser, without `parse_`; the probe's own name where the parser is no plain function."""
    if not inspect.isfunction(probe.parse) or probe.parse.__name__ == "<lambda>":
        return probe.name
    return f"{probe.parse.__module__.rpartition('.')[2]}.{probe.parse.__name__.removeprefix('parse_')}"


def _of(
    probe: Probe[Any], facts: Callable[[Any], Facts], bring: Callable[[str], str | None] = str, said: bool = False
) -> Reading:
    """A reading by a probe's parser; `said`: nothing but the output counts, not its exit status."""
    return Reading(
        name_parser(probe),
        lambda out: facts(probe.parse(Output(bring(out.text) or "", 0 if said else out.status, out.error))),
    )


def _piece(program: str, *arguments: str) -> Callable[[str], str]:
    """An awk or sed program of a probe's script over an output."""

    @cache
    def run(text: str) -> str:
        done = subprocess.run([*arguments, program], input=text, capture_output=True, text=True, check=True, timeout=20)
        return done.stdout

    return run


def _awk(script: str, after: str) -> Callable[[str], str]:
    """The awk program that a script gives an output to: between quotes, behind these words."""
    match = re.search(re.escape(after) + r"[^']*'([^']*)'", script)
    assert match, f"the probe no longer pipes {after!r} into awk"
    return _piece(match[1], "awk", "-v", "v=value|device|1")


def _prefixed(kind: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{kind}|{line}\n" for line in text.splitlines())


def _models(names: list[str]) -> list[str]:
    """Keys of the catalogue; `unknown` for a name that it does not have."""
    found = [gpu.key if (gpu := find_gpu(name)) else "unknown" for name in names]
    return list(dict.fromkeys(found))


# Adapters: from what people paste to what the probe prints.


def _rpm_qa(text: str) -> str:
    """NAME-VERSION-RELEASE.ARCH; rpm -qa shows neither epoch nor source package."""
    pattern = r"^(\S+)-([^-\s]+)-([^-\s]+)\.(x86_64|noarch|aarch64|i686)\s*$"
    found = re.findall(pattern, text, re.MULTILINE)
    return "".join(f"rpm|{name}|0|{version}|{release}|{arch}|\n" for name, version, release, arch in found)


def _dnf_list(text: str) -> str:
    """`dnf list`: NAME.ARCH [EPOCH:]VERSION-RELEASE REPOSITORY."""
    pattern = r"^(\S+)\.(x86_64|noarch|aarch64)\s+(?:(\d+):)?([^-\s]+)-(\S+)\s+\S+\s*$"
    found = re.findall(pattern, text, re.MULTILINE)
    return "".join(
        f"rpm|{name}|{epoch or 0}|{version}|{release}|{arch}\n" for name, arch, epoch, version, release in found
    )


def _yum_installed(text: str) -> str:
    """`yum list installed`: as `dnf list`; a long name has a line of its own. It shows no source package."""
    joined = re.sub(r"^(\S+)\n +(?=\S)", r"\1 ", text, flags=re.MULTILINE)
    return re.sub(r"\n", "|\n", _dnf_list(joined))


def _repoquery(text: str) -> str:
    """`dnf repoquery`: NAME-EPOCH:VERSION-RELEASE.ARCH."""
    pattern = r"^(\S+)-(\d+):([^-\s]+)-([^-\s]+)\.(x86_64|noarch|aarch64)\s*$"
    return "".join(f"rpm|{'|'.join(found)}\n" for found in re.findall(pattern, text, re.MULTILINE))


def _links(text: str) -> str:
    """`nvidia-smi nvlink -s`; the row of each GPU, which the probe asks apart, is blank but for its index."""
    seen = re.findall(r"^GPU (\d+):", text, re.MULTILINE)
    gpus = "".join(f"gpu|{index}, 00000000:00:00.0, , , \n" for index in seen)
    return gpus + _prefixed("link")(text)


def _indented(text: str) -> str:
    return "".join(f" {line}\n" for line in text.splitlines())


def _engine(name: str, key: str) -> Callable[[str], str]:
    """A file of an engine, or what it says itself (`dump`, `live`), in the form of the probe."""
    place = f"@file {key} 0" if key.startswith("/") else f"@{key}"
    return lambda text: f"@engine {name}\n{place}\n{_indented(text)}"


# Facts: what a parser found, in the words of about.yaml.


def _plain(found: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(found))


def _topology(found: nvlink.NvLinks) -> Facts:
    pairs = found.pairs or {}
    return {"nvlink_pairs": len(pairs), "nvlinks": sorted(set(pairs.values()))}


def _link_facts(found: nvlink.NvLinks) -> Facts:
    return {
        "gpus": len(found.gpus),
        "links": sorted({gpu.links for gpu in found.gpus}),
        "active": sorted({gpu.active for gpu in found.gpus}),
    }


def _recorded_link_facts(found: tuple[recorded.GpuLinks, ...]) -> Facts:
    return {
        "gpus": len(found),
        "links": sorted({gpu.links for gpu in found}),
        "active": sorted({gpu.active for gpu in found}),
    }


def _registered(name: str) -> Callable[[dict[str, Any]], Facts]:
    def facts(found: dict[str, Any]) -> Facts:
        return {"runtime": engines.registered(name, engines.configuration(name, found[name]))._asdict()}

    return facts


def _devices(found: container_toolkit.Devices) -> Facts:
    mig = [name for name in found.names if ":" in name]
    gpus = [name for name in found.names if ":" not in name]
    return {"gpus": len(set(gpus) | {name.partition(":")[0] for name in mig}), "mig_devices": len(mig)}


def _names_of_l(out: Output) -> Facts:
    return {"models": _models(re.findall(r"^GPU \d+: (.*?) \(UUID", out.text, re.MULTILINE))}


def _names_of_q(out: Output) -> Facts:
    return {"models": _models(re.findall(r"^    Product Name\s+: (.*?)\s*$", out.text, re.MULTILINE))}


def _names_of_env(out: Output) -> Facts:
    return {"models": _models(re.findall(r"GPU \d+: (.*?)\s*$", out.text, re.MULTILINE))}


def _header(out: Output) -> Facts:
    """The driver's branch in the head of nvidia-smi, and the CUDA release that the catalogue gives the branch."""
    match = re.search(r"[Dd]river [Vv]ersion\s*: (\d+(?:\.\d+)*)", out.text) or re.search(
        r"KMD Version: (\d+(?:\.\d+)*)", out.text
    )
    if match is None:
        return {"branch_cuda": "not said"}
    branch = find_branch(match[1])
    return {"branch_cuda": branch.cuda if branch and branch.cuda else "unknown"}


def _settings(found: gpu_settings.State) -> Facts:
    """What is set on each GPU: watts as set, least and most; application clocks in MHz, memory first, or what stands
    for them."""
    return {
        "ecc": [gpu.ecc for gpu in found.gpus],
        "power": [[gpu.power, gpu.power_least, gpu.power_most] if gpu.power else None for gpu in found.gpus],
        "application_clocks": [
            [gpu.application_memory, gpu.application_graphics] if gpu.application_memory else gpu.applications
            for gpu in found.gpus
        ],
        "compute_modes": [gpu.compute_mode for gpu in found.gpus],
        "slow": [list(gpu.reasons) for gpu in found.gpus],
    }


def _health(found: gpu_state.State) -> Facts:
    """Of each GPU: what ECC counted since the driver was loaded, rows remapped, and what slows it down that is no
    setting."""
    return {
        "uncorrected": [gpu.volatile.uncorrected for gpu in found.gpus],
        "remapped": [
            None if gpu.remapped is None else [gpu.remapped, gpu.remap_pending, gpu.remap_failed] for gpu in found.gpus
        ],
        "slowed": [None if gpu.slow is None else list(gpu.slow) for gpu in found.gpus],
        "below": [gpu.below for gpu in found.gpus],
    }


def _pci(found: tuple[pci.PciFunction, ...]) -> Facts:
    gpus = pci.gpus(found)
    bound = sorted({function.driver for function in gpus if function.driver})
    return {"gpus": len(gpus), "models": _models([gpu.identifier for gpu in gpus]), "bound": bound}


def _licences(found: vgpu.Licences) -> Facts:
    modes = sorted({gpu.mode for gpu in found.gpus if gpu.mode})
    licences = sorted({gpu.status.partition(" (")[0] for gpu in found.gpus if gpu.status})
    return {"gpus": len(found.gpus), "virtualization": modes, "licences": licences}


def _pcie_links(found: tuple[recorded.PcieLink, ...]) -> Facts:
    """Each link as it is, as the function could have it, and as the port above it could: GT/s and lanes."""
    links = {
        one.address: [f"{speed:g} x{width}" for speed, width in zip(one.speeds, one.widths, strict=True)]
        for one in found
    }
    return {"pcie_links": {address: "{} of {} above {}".format(*told) for address, told in links.items()}}


def _from_xml(reading: Reading) -> Reading:
    """The same of `nvidia-smi -q -x`."""
    return reading._replace(facts=lambda out: reading.facts(Output(smi_xml.convert(out.text), out.status, out.error)))


def _roce(text: str) -> Facts:
    found = roce.parse(Output("port|device|1||\n" + text))
    return {"qos": found.ports[0].values}


def _packages(found: dict[str, packages.Package]) -> Facts:
    versions = {name: package.version for name, package in found.items()}
    held = sorted(name for name, package in found.items() if package.held)
    broken = sorted(name for name, package in found.items() if not package.whole)
    return {"packages": versions, "held": held, "broken": broken}


def _measured(function: Callable[..., Any], fact: str, *keys: str) -> Reading:
    """A figure that a program printed; why it has none, where that is what is true."""

    def facts(out: Output) -> Facts:
        size = re.search(r"^ ?(\d+) +\d+ +[\d.]+ +[\d.]+", out.text, re.MULTILINE)
        try:
            return {fact: function(out.text, int(size[1]) if size else 0) if keys else function(out.text)}
        except outputs.Unreadable as error:
            return {fact: None, "unreadable": str(error)}

    return Reading(f"acceptance_outputs.{function.__name__}", facts)


def _pings() -> Reading:
    """ibping is told how many to send, and says how many it sent."""

    def facts(out: Output) -> Facts:
        sent = re.search(r"^(\d+) packets transmitted", out.text, re.MULTILINE)
        return {"pings_answered": outputs.ibping(out.text, int(sent[1]) if sent else 0)}

    return Reading("acceptance_outputs.ibping", facts)


def _copies() -> Reading:
    """A matrix as nvbandwidth shows it without -j, in the words of its JSON."""

    def facts(out: Output) -> Facts:
        name = re.search(r"^SUM (\w+)", out.text, re.MULTILINE)
        rows = [
            line.split()[1:]
            for line in out.text.splitlines()
            if re.match(r" ?\d+ +(N/A|[\d.]+)( +(N/A|\d+\.\d+))* *$", line)
        ]
        assert name
        rows = [row for row in rows if any("." in cell for cell in row)]
        case = {"name": name[1], "status": "Passed", "bandwidth_matrix": rows}
        text = msgspec.json.encode({"nvbandwidth": {"testcases": [case]}}).decode()
        return {"slowest_copy": outputs.copies(text, name[1])}

    return Reading("acceptance_outputs.copies", facts)


def _collective(text: str) -> Facts:
    found = outputs.collective(text)
    return {"busbw": found.busbw, "networks": list(found.networks), "gdrdma": found.gdrdma}


def _diag(text: str) -> Facts:
    found = outputs.diagnostics(text)
    return {
        "passed": found.passed,
        "failed": [one.partition(":")[0] for one in found.failed],
        "skipped": list(found.skipped),
    }


def _facts_or_why(function: Callable[[str], Facts], parser: str) -> Reading:
    def facts(out: Output) -> Facts:
        try:
            return function(out.text)
        except outputs.Unreadable as error:
            return {"unreadable": str(error)}

    return Reading(f"acceptance_outputs.{parser}", facts)


_FABRIC = _awk(fabric.STATE.script, "nvidia-smi -q 2>/dev/null | awk ")
_LICENCES = _awk(vgpu.LICENCES.script, "nvidia-smi -q 2>&1 | awk ")
_QOS = _awk(roce.ROCE.script, 'mlnx_qos -i "$i" 2>/dev/null | awk -v v="$v" ')
_AUDITED = ("unpacked but not yet configured", "half configured", "initramfs-tools", "gnuplot-doc", "man-db", "procps")
_SYSFS = "the probes read sysfs, which tells more and needs no program"
_LOG = "a log: gpuprov explain answers its lines (messages in about.yaml)"

_SMI_Q = (
    _of(fabric.STATE, lambda found: {"fabric": [[gpu.state, gpu.status] for gpu in found]}, _FABRIC, said=True),
    _of(vgpu.LICENCES, _licences, _LICENCES, said=True),
    _of(gpu_settings.SETTINGS, _settings, said=True),
    _of(gpu_health.GPU_HEALTH, _health, lambda text: f"@present 1\n@smi\n{text}", said=True),
    Reading("catalog: gpus", _names_of_q),
)

COMMANDS: dict[str, tuple[Reading, ...] | str] = {
    "host": "read by every probe in it (host.capture.json)",
    "proc-driver-nvidia-version": (
        _of(
            nvidia.DRIVER,
            lambda found: {"driver": found.version, "modules_flavour": "open" if found.open else "proprietary"},
        ),
    ),
    "proc-driver-nvidia-params": (_of(nvidia.PARAMETERS, lambda found: {"parameters": found}),),
    "proc-cmdline": (_of(boot.COMMAND_LINE, lambda found: {"command_line": found}),),
    "modprobe-d": (
        _of(modules.MODPROBE, lambda found: {"blacklist": sorted(found.blacklist), "options": found.options}),
    ),
    "lsmod": (_of(modules.LOADED, lambda found: {"modules": found}),),
    "os-release": (_of(system.OS_RELEASE, lambda found: {"distribution": f"{found.id} {found.version}".strip()}),),
    "uname-a": (_of(system.PLATFORM, lambda found: {"kernel": found.kernel, "machine": found.machine}, adapt.uname),),
    "uname-r": "the release alone: the probe asks uname -srm",
    "systemctl-status": "the probes ask systemctl show",
    "lspci-nn": (_of(pci.NVIDIA_FUNCTIONS, _pci, lspci.convert_functions),),
    "lspci": "without ids (lspci -nn) a name is what the machine's own list says",
    "lspci-vv": (
        _of(recorded.PCIE, _pcie_links, lspci.list_pcie_links),
        _of(
            recorded.GONE,
            lambda found: {"gone": {one.address: one.identifier for one in found}},
            lspci.list_nameless_gone,
        ),
    ),
    "nvidia-smi": (Reading("catalog: drivers", _header),),
    "nvidia-smi-failed": (
        _of(
            nvidia.SMI,
            lambda found: {"gpus": len(found.gpus), "installed": found.installed, "complaint": bool(found.complaint)},
        ),
    ),
    "nvidia-smi-query-gpu": (
        _of(nvidia.SMI, lambda found: {"gpus": len(found.gpus), "complaint": bool(found.complaint)}),
    ),
    "nvidia-smi-L": (_of(container_toolkit.DEVICES, _devices), Reading("catalog: gpus", _names_of_l)),
    "nvidia-smi-q": _SMI_Q,
    "nvidia-smi-q-x": tuple(_from_xml(reading) for reading in _SMI_Q),
    "nvidia-smi-conf-compute-f": (_of(gpu_settings.CONFIDENTIAL, lambda found: {"confidential": found.mode}),),
    "nvidia-smi-conf-compute-q": (_of(gpu_settings.CONFIDENTIAL, lambda found: {"confidential": found.mode}),),
    "collect-env": (Reading("catalog: gpus", _names_of_env), Reading("catalog: drivers", _header)),
    "gdscheck": (_of(gds.CHECK, lambda found: {"gds_check": _plain(found)}, _prefixed("said")),),
    "nvidia-smi-pl": "NVML is asked (gpuprov/host_code/gpu_settings)",
    "nvidia-smi-q-block": "a block of nvidia-smi -q without the line of its GPU",
    "nvidia-smi-topo-m": (_of(nvlink.NVLINKS, _topology, _prefixed("topo")),),
    "nvidia-smi-nvlink-s": (
        _of(nvlink.NVLINKS, _link_facts, _links),
        _of(recorded.LINKS, _recorded_link_facts),
    ),
    "nvidia-smi-nvlink-e": (
        _of(
            health_links.NVLINK_ERRORS,
            lambda found: {
                "gpus": len(found.gpus),
                "nvlink_errors": [[gpu.links, gpu.replays, gpu.recoveries, gpu.crc] for gpu in found.gpus],
            },
        ),
    ),
    "nvidia-smi-mig-lgip": "NVML is asked (mig_reader.py), in the names that nvidia-smi prints",
    "nvidia-smi-mig-lgi": "NVML is asked (mig_reader.py)",
    "nvml-fabric": "a program's own print of NVML's fabric fields",
    "nv-fabricmanager-version": (
        _of(
            fabric.DAEMON,
            lambda found: {"fabric_manager": found.version},
            lambda text: f"version|{text.splitlines()[0]}",
        ),
    ),
    "fabricmanager-log": _LOG,
    "nvidia-imex-ctl-text": "the probe asks nvidia-imex-ctl for JSON (-N -j)",
    "dkms-status": "modules are looked for by kernel (modinfo), not in DKMS's own words",
    "dkms-make-log": _LOG,
    "dkms-install": _LOG,
    "dmesg": _LOG,
    "journal": _LOG,
    "program": _LOG,
    "apt": _LOG,
    "dnf": _LOG,
    "modinfo": "the probes ask single fields (modinfo -F), and of every kernel",
    "rpm-scripts": "what a package does, not what a host is",
    "dpkg-l": (_of(packages.PACKAGES, _packages, adapt.dpkg),),
    "dpkg-audit": (
        _of(packages.AUDIT, lambda found: {"broken_database": [word for word in _AUDITED if word in found]}),
    ),
    "rpm-qa": (_of(packages.PACKAGES, _packages, _rpm_qa),),
    "apt-cache-madison": (_of(packages.INDEX, lambda found: {"offered": dict(found)}),),
    "dnf-list": (_of(packages.INDEX, lambda found: {"offered": dict(found)}, _dnf_list),),
    "yum-list-installed": (_of(packages.PACKAGES, _packages, _yum_installed),),
    "dnf-repoquery": (_of(packages.INDEX, lambda found: {"offered": dict(found)}, _repoquery),),
    "apt-cache-policy": "the probe asks apt-cache madison",
    "daemon-json": (
        _of(container_engines.ENGINES, _registered("docker"), _engine("docker", "/etc/docker/daemon.json")),
    ),
    "containerd-config-dump": (
        _of(container_engines.ENGINES, _registered("containerd"), _engine("containerd", "dump")),
    ),
    "docker-info": "the probe asks docker info for JSON",
    "nvidia-ctk-version": (
        _of(
            container_toolkit.TOOLKIT,
            lambda found: {"toolkit": found.version},
            lambda text: f"version {text.splitlines()[0]}",
        ),
    ),
    "nvidia-container-runtime-config": (
        _of(container_toolkit.TOOLKIT, lambda found: {"toolkit_settings": found.settings}, _indented),
    ),
    "cdi-yaml": (
        _of(
            container_toolkit.CDI,
            lambda found: {"cdi_devices": list(found[0].devices), "cdi_versions": list(found[0].versions)},
            lambda text: f"@spec /etc/cdi/nvidia.yaml\n{text}",
        ),
    ),
    "dcgmi-discovery": (
        _of(
            dcgm.DCGM,
            lambda found: {"gpus": found.gpus, "nvswitches": found.switches, "dcgm": found.complaint},
            _prefixed("discovery"),
        ),
    ),
    "nvcc-version": (
        _of(
            cuda_toolkit.TOOLKITS,
            lambda found: {"nvcc": found.toolkits["x"].build},
            lambda text: re.sub(
                r"(?s).*release ([0-9.]*), V([0-9.]*).*", r"@toolkit x\nnvcc \1 \2\nspace 0 /usr/local\n", text
            ),
        ),
    ),
    "which-nvcc": (_of(acceptance.BUILD, lambda found: {"nvcc_path": found}),),
    "ofed-info": (Reading("ofed.release", lambda out: {"ofed": ofed.release(out.text)}),),
    "mlnx-qos": (Reading("roce.parse", lambda out: _roce(_QOS(out.text))),),
    "show-gids": _SYSFS,
    "ibstat": (
        _of(
            recorded.PORTS,
            lambda found: {
                "recorded_ports": {
                    f"{one.name} {port.number}": f"{port.state or 'unknown'} {port.link_layer} {port.rate:g}"
                    for one in found
                    for port in one.ports
                }
            },
            adapt.ibstat,
        ),
    ),
    "fi-info": (
        _of(
            efa.EFA,
            lambda found: {"devices": list(found.domains or ()), "complaint": found.complaint},
            lambda text: "found|\n" + _prefixed("fi")(text),
        ),
    ),
    "ibv-devinfo": _SYSFS,
    "ibdev2netdev": _SYSFS,
    "ib-write-bw": (_measured(outputs.bandwidth, "gbits", "size"),),
    "ib-write-lat": (_measured(outputs.latency, "usec", "size"),),
    "ibv-rc-pingpong": (_measured(outputs.pingpong, "usec"),),
    "ibping": (_pings(),),
    "rping": (_measured(outputs.rping, "pings"),),
    "nccl-tests": (_facts_or_why(_collective, "collective"),),
    "nvbandwidth": (_copies(),),
    "dcgmi-diag-j": (_facts_or_why(_diag, "diagnostics"),),
}
"""By the name of a capture's file, without what follows its first dot: what reads it, or why nothing does."""
