"""Conversion of a report's pieces to outputs of probes: each is brought into the probe's own form, with nothing added.
A piece that has only half of a probe's data is not used as its output: checks would take it for complete."""

import re
from collections.abc import Callable

import msgspec

from gpuprov.facts.captures import bug_report, logs, lspci, plain
from gpuprov.facts.captures.model import Pieces
from gpuprov.facts.captures.plain import SMI
from gpuprov.facts.probes import recorded
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus import smi_query
from gpuprov.facts.probes.host import pci
from gpuprov.facts.probes.host.systemd import UNITS

MACHINES = r"\b(x86_64|aarch64|ppc64le)\b"


def uname(text: str) -> str | None:
    """Convert `uname -a` to `uname -srm`; None if the machine type is missing."""
    words, machine = text.split(), re.findall(MACHINES, text)
    return f"{words[0]} {words[2]} {machine[-1]}\n" if len(words) > 3 and machine else None


def dpkg(text: str) -> str:
    """Convert the columns of `dpkg -l`; it does not show the source package, which stays empty."""
    rows = []
    architecture = "amd64"
    for line in text.splitlines():
        # ii  libnvidia-compute-515:amd64   515.43.04-0ubuntu1   amd64   NVIDIA libcompute package
        # rc  linux-modules-nvidia-470-5.14.0-1011-oem   5.14.0-1011.11   amd64   Linux kernel nvidia ...
        match = re.match(r"([uihrp][ncHUFWti][R ]?)\s+(\S+)\s+(\S+)(?:\s+(\S+))?", line)
        if match:
            name, _, arch = match[2].partition(":")
            arch = arch or (match[4] if match[4] in ("amd64", "arm64", "i386", "all") else "all")
            if name == "dpkg":
                architecture = arch
            rows.append(f"{match[1].ljust(3)}|{name}|{match[3]}||{arch}")
    return f"native|{architecture}\n" + "".join(row + "\n" for row in rows)


def fabric(text: str) -> str:
    """Extract from `nvidia-smi -q` the lines of each GPU and of its block Fabric; drivers without this block know of no
    fabric."""
    kept = []
    for block in re.split(r"^(?=GPU [0-9A-Fa-f])", text, flags=re.MULTILINE)[1:]:
        kept.append(block.splitlines()[0])
        inside, shown = False, len(kept)
        for line in block.splitlines()[1:]:
            if re.match(r"    \S", line):
                inside = line.split() == ["Fabric"]
            elif inside and line.startswith("        "):
                kept.append(line)
        if len(kept) == shown and "\n    Product Name " in block:
            kept += [f"        {name} : N/A" for name in ("State", "Status")]
    return "".join(line + "\n" for line in kept)


def smi_rows(text: str) -> str:
    """Convert `nvidia-smi -q` to a row per GPU as --query-gpu prints it, or its error."""
    # Driver Version                                         : 580.159.04
    driver = re.search(r"^Driver Version\s*: (\S+)", text, re.MULTILINE)
    if driver is None:
        return text
    rows = []
    for block in re.split(r"^(?=GPU [0-9A-Fa-f]{4,8}:)", text, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^    (Product Name|Persistence Mode|GPU UUID)[ \t]*: (.*)$", block, re.MULTILINE))
        name, uuid = values.get("Product Name", "?").strip(), values.get("GPU UUID", "").strip()
        rows.append(f"{block.split()[1]}, {name}, {uuid}, {driver[1]}, {values.get('Persistence Mode', '').strip()}\n")
    return "".join(rows)


def units(shown: str, files: str) -> str | None:
    """Convert `systemctl show` of all services and `systemctl list-unit-files` to the blocks of the needed units."""
    blocks = {}
    for block in re.split(r"\n\s*\n", shown):
        if match := re.search(r"^Id=(.*)$", block, re.MULTILINE):
            blocks[match[1].strip()] = block.strip("\n")
    if not blocks or "UNIT FILE" not in files:
        return None
    states = dict(re.findall(r"^(\S+\.\w+)\s+([a-z-]+)", files, re.MULTILINE))
    needed = []
    for name in UNITS:
        if name in blocks:
            needed.append(blocks[name])
        else:  # not loaded: systemd has nothing to say of it but whether there is a file
            load = "loaded" if name in states else "not-found"
            needed.append(f"Id={name}\nLoadState={load}\nActiveState=inactive\nUnitFileState={states.get(name, '')}")
    return "\n\n".join(needed) + "\n"


def _read_from_file(path: str) -> Callable[[Pieces], str | None]:
    return lambda pieces: pieces.file(path)


def _read_from_command(name: str, adapt: Callable[[str], str | None] = str) -> Callable[[Pieces], str | None]:
    def read_command(pieces: Pieces) -> str | None:
        text = pieces.commands.get(name)
        return None if text is None else adapt(text)

    return read_command


def _read_from_bus(adapt: Callable[[str], str]) -> Callable[[Pieces], str | None]:
    def read_bus(pieces: Pieces) -> str | None:
        shown = ("lspci -nnDvvvxxxx", "lspci -nnvv", "lspci -nnk", "lspci -nn")
        return next((adapt(text) for command in shown if (text := pieces.commands.get(command)) is not None), None)

    return read_bus


_convert_functions = _read_from_bus(lspci.convert_functions)


def _list_gone(pieces: Pieces) -> str | None:
    nameless = pieces.commands.get(plain.NAMELESS)
    return _read_from_bus(lspci.list_gone)(pieces) or (lspci.list_nameless_gone(nameless) if nameless else None)


def _list_pcie_links(pieces: Pieces) -> str | None:
    """List the links of PCIe; None for lspci without -v."""
    nameless = pieces.commands.get(plain.NAMELESS)
    return _read_from_bus(lspci.list_pcie_links)(pieces) or (nameless and lspci.list_pcie_links(nameless)) or None


def _convert_gpu_health(pieces: Pieces) -> str | None:
    """Convert GPU health: without the PCI bus, too, though nvidia-smi says nothing of GPUs that it does not show; of
    the bus alone that a GPU on it does not answer."""
    functions, shown = _convert_functions(pieces), pieces.commands.get(SMI)
    if functions is None:
        return f"@smi\n{shown}" if shown and "Driver Version" in shown else None
    gpus = [gpu for gpu in pci.parse(Output(functions)) if gpu.pci_class[:4] in ("0300", "0302")]
    ours = [gpu for gpu in gpus if not pci.is_lent(gpu.driver)]
    gone = "".join(f"@gone {gpu.address}\n" for gpu in ours if gpu.gone)
    if shown is None and not gone:
        return None
    return f"@present {len(ours)}\n@given {len(gpus) - len(ours)}\n{gone}@smi\n{shown or ''}"


def _convert_nvlink_errors(pieces: Pieces) -> str | None:
    shown = pieces.commands.get("nvidia-smi nvlink -e")
    return None if shown is None else f"{shown}@status 0\n"


_STATES = {"Active": "4: ACTIVE", "Initializing": "2: INIT", "Down": "1: DOWN", "Armed": "3: ARMED"}


def ibstat(text: str) -> str:
    """Convert `ibstat` to the form of the reader of RDMA devices; it does not say PCI functions and drivers."""
    rows = []
    for block in re.split(r"^\s*(?=CA ')", text, flags=re.MULTILINE):
        # CA 'mlx5_0'
        #         CA type: MT4129
        #         Port 1:
        #                 State: Active
        #                 Rate: 200
        if not (name := re.match(r"CA '([\w.-]{1,60})'", block)):
            continue
        kind = re.search(r"CA type: *MT(\d{4,5})\s*$", block, re.MULTILINE)
        ids = f"0x15b3|{int(kind[1]):#06x}" if kind else "|"
        rows.append(f"device|{name[1]}|||{ids}|1: CA|||-1|||")
        for number, part in re.findall(r"Port (\d{1,3}):[ \t]*\n((?:(?!\s*Port \d).*\n?)*)", block):
            port = dict(re.findall(r"^\s*([\w ]+?): ?([\w./-]*)\s*$", part, re.MULTILINE))
            rate = port.get("Rate", "")
            cells = (
                _STATES.get(port.get("State", ""), ""),
                f"5: {port.get('Physical state', '')}",
                port.get("Link layer", ""),
                f"{rate} Gb/sec" if re.fullmatch(r"\d{1,5}(\.\d)?", rate) else "",
            )
            rows.append(f"port|{name[1]}|{number}|{'|'.join(cells)}|0x0|0x0")
    return "".join(f"{row}\n" for row in rows)


# Logs with the kernel's lines, the best first.
LOGS = ("dmesg", "journalctl --boot", "journalctl", "/var/log/kern.log", "/var/log/messages", "/var/log/syslog")


def _convert_kernel_log(pieces: Pieces) -> str | None:
    """Convert the first log that begins with the boot, or else the first one; NVIDIA's lines alone if there is no
    other."""
    made = bug_report.seconds(pieces.commands.get("date", ""))
    texts = (pieces.commands.get(name) or pieces.files.get(name) for name in LOGS)
    own = "".join(pieces.commands.get("uname -a", "").split()[1:2]).partition(".")[0]
    kernel_logs = [log for text in texts if text and (log := logs.kernel_log(_select_lines(text, own), made))]
    if timed := [log for log in kernel_logs if logs.is_timed(log)] or kernel_logs:
        return next((log for log in timed if logs.is_whole(log)), timed[0])
    searched = pieces.commands.get(bug_report.SEARCHED)
    return logs.kernel_log(searched, made, searched=True) if searched and made else None


def _select_lines(text: str, host: str) -> str:
    """Select the host's own lines of a log of several hosts."""
    return next((part for name, part in logs.split_by_host(text).items() if name.partition(".")[0] == host), text)


BRIDGE = "[15b3:1021]"


def _find_bridges(pieces: Pieces) -> str | None:
    """Find bridges to NVSwitches; None if there is a ConnectX-7: only its vital product data show whether it is one."""
    shown = next((text for command, text in pieces.commands.items() if command.startswith("lspci -nn")), None)
    return "" if shown and BRIDGE not in shown else None


def _convert_loaded(pieces: Pieces) -> str | None:
    shown = pieces.files.get("/proc/modules") or pieces.commands.get("lsmod")
    return shown and re.sub(r"\AModule\s+Size.*\n", "", shown)


def _convert_limits(pieces: Pieces) -> str | None:
    """Convert login limits; None for a truncated report: a missing file might override the others."""
    if "/etc/security/limits.conf" not in pieces.files or pieces.cut:
        return None
    return "".join(
        pieces.files[path] + "\n" for path in sorted(pieces.files) if path.startswith("/etc/security/limits")
    )


def _convert_units(pieces: Pieces) -> str | None:
    shown, files = pieces.commands.get("systemctl show service"), pieces.commands.get("systemctl list-unit-files")
    return units(shown, files) if shown and files else None


def _convert_os_release(pieces: Pieces) -> str | None:
    return pieces.files.get("/etc/os-release") or pieces.files.get("/usr/lib/os-release")


# Converters by probe name, for data that a report may have. Not packages of an rpm host: a report lists them without
# epoch and locks.
PROBES: dict[str, Callable[[Pieces], str | None]] = {
    "loaded_driver": _read_from_file("/proc/driver/nvidia/version"),
    "driver_parameters": _read_from_file("/proc/driver/nvidia/params"),
    "command_line": _read_from_file("/proc/cmdline"),
    "os_release": _convert_os_release,
    "platform": _read_from_command("uname -a", uname),
    "loaded_modules": _convert_loaded,
    "login_limits": _convert_limits,
    "default_limits": _read_from_command(
        "systemctl show",
        lambda text: "".join(f"{row}\n" for row in text.splitlines() if row.startswith("DefaultLimit")),
    ),
    "sysctl": _read_from_command("sysctl -a"),
    "nvidia_functions": _convert_functions,
    "nvidia_smi": _read_from_command(SMI, smi_rows),
    "fabric_state": _read_from_command(SMI, fabric),
    "fabric_bridges": _find_bridges,
    "packages": _read_from_command("dpkg -l", dpkg),
    "fabric_packages": _read_from_command("dpkg -l", dpkg),
    "units": _convert_units,
    "gpu_health": _convert_gpu_health,
    "nvlink_errors": _convert_nvlink_errors,
    "kernel_log": _convert_kernel_log,
    "receipt": _read_from_file("/var/lib/gpuprov/receipt.json"),
    "recorded_ports": _read_from_command(plain.IBSTAT, ibstat),
    "recorded_links": _read_from_command(plain.NVLINK_STATUS),
    "recorded_gone": _list_gone,
    "recorded_pcie": _list_pcie_links,
}


def whole(pieces: Pieces) -> Pieces:
    """Return the pieces without a truncated list of GPUs, which would lack the others. A truncated list of NVLinks
    stays: it can only show defects."""
    links = recorded.explain_missing_links(pieces.commands.get(plain.NVLINK_STATUS, ""))
    pieces = msgspec.structs.replace(pieces, cut=pieces.cut or links)
    if lacking := smi_query.explain_truncation(pieces.commands.get(SMI, "")):
        kept = {name: text for name, text in pieces.commands.items() if name != SMI}
        return msgspec.structs.replace(pieces, commands=kept, cut=pieces.cut or lacking)
    return pieces


def outputs(pieces: Pieces) -> dict[str, Output]:
    """Return the outputs of the probes for which these pieces have data."""
    texts = {name: made(pieces) for name, made in PROBES.items()}
    status = dict.fromkeys(("nvidia_smi", "gpu_health"), _get_smi_status(pieces))
    return {name: Output(text, status.get(name, 0)) for name, text in texts.items() if text is not None}


def _get_smi_status(pieces: Pieces) -> int:
    return 0 if "Driver Version" in pieces.commands.get(SMI, "") else 9
