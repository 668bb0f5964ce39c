"""Link error counters: NVLinks from nvidia-smi, InfiniBand and RoCE ports from sysfs."""

import re

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe


class NvLinkErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one GPU, all its links together; None if it does not have the counter. `faults` and the bit error rates
    of the worst link: from Blackwell on; failed recoveries are faults."""

    index: int
    links: int = 0
    replays: int | None = None
    recoveries: int | None = None
    crc: int | None = None
    faults: int | None = None
    effective_ber: float | None = None
    symbol_ber: float | None = None
    # Names of counters that it reports as unsupported.
    uncounted: tuple[str, ...] = ()
    # Values that are not numbers, each with its link and its name.
    unread: tuple[str, ...] = ()


class NvLinkState(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs."""

    gpus: tuple[NvLinkErrors, ...] = ()
    # The reason why nothing is known.
    complaint: str = ""
    # The reason is that nvidia-smi printed no GPU, and no error.
    nameless: bool = False


class PortErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of a port since its driver was loaded; `errors` by the names of sysfs, without zeros."""

    device: str
    port: int
    downed: int | None = None
    errors: dict[str, int] = {}
    # Errors of RDMA's transport, from hw_counters; None where the port has none of them. Port 0: the device itself.
    transport: dict[str, int] | None = None
    # The port has counters of its link.
    link: bool = True

    @property
    def name(self) -> str:
        return f"{self.device} port {self.port}" if self.port else self.device


# Lines of NVLink 5 that count errors, as public tools read them; symbols corrected by its error-correcting code do not
# count.
FAULTS = (
    "Malformed packet Errors",
    "Buffer overrun Errors",
    "Rx Errors",
    "Rx remote Errors",
    "Rx General Errors",
    "Local link integrity Errors",
    "Link recovery failed events",
)
RECOVERED = "Link recovery successful events"
COUNTED = ("Replay Errors", "Recovery Errors", "CRC Errors", *FAULTS, RECOVERED)
# Bit error rates; `15e-255` on an NVLink 5 without errors, the minimum that NVML can report (NvmlBerParser of
# https://github.com/NVIDIA/DCGM).
RATES = ("Effective BER", "Symbol BER")
NOTHING = ("N/A", "[N/A]", "Not Supported")
# 15e-255
RATE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?(?:[eE][+-]?[0-9]{1,3})?")


def parse_nvlinks(output: Output) -> NvLinkState:
    if output.status == 127:
        return NvLinkState(complaint="nvidia-smi is not installed")
    counted: dict[int, dict[str, list[float]]] = {}
    links: dict[int, set[str]] = {}
    unread: dict[int, list[tuple[str, str, str]]] = {}
    index = -1
    for line in output.text.splitlines():
        # `nvidia-smi nvlink -e` of an H100
        # (https://github.com/stas00/ml-engineering/blob/master/compute/accelerator/nvidia/debug.md):
        #     GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000001-0000-0000-0000-000000000000)
        #              Link 0: Replay Errors: 0
        #              Link 0: Recovery Errors: 0
        #              Link 0: CRC Errors: 0
        if match := re.match(r"GPU (\d{1,3}):", line.strip()):
            index = int(match[1])
            counted[index], links[index], unread[index] = {}, set(), []
        elif index >= 0 and (match := re.match(r"Link (\d{1,3}): ([\w ]+):\s*(.*)\Z", line.strip())):
            number, name, value = match.groups()
            links[index].add(number)
            if name not in (*COUNTED, *RATES):
                continue
            if bool(RATE.fullmatch(value)) if name in RATES else is_whole(value):
                counted[index].setdefault(name, []).append(float(value) if name in RATES else int(value))
            else:
                unread[index].append((number, name, value))
    gpus = tuple(
        _sum_errors(number, len(links[number]), counters, unread[number])
        for number, counters in sorted(counted.items())
    )
    text, _, status = output.text.partition("@status ")
    message = " ".join((text or output.error).split())[:200]
    complaint = "" if gpus else message or "nvidia-smi nvlink -e said nothing"
    return NvLinkState(gpus=gpus, complaint=complaint, nameless=not gpus and not message and status.strip() == "0")


def _sum_errors(
    index: int, links: int, counters: dict[str, list[float]], unread: list[tuple[str, str, str]]
) -> NvLinkErrors:
    def total(*names: str) -> int | None:
        counts = [value for name in names for value in counters.get(name, ())]
        return int(sum(counts)) if counts else None

    return NvLinkErrors(
        index=index,
        links=links,
        replays=total("Replay Errors"),
        recoveries=total("Recovery Errors", RECOVERED),
        crc=total("CRC Errors"),
        faults=total(*FAULTS),
        effective_ber=max(counters.get("Effective BER", ()), default=None),
        symbol_ber=max(counters.get("Symbol BER", ()), default=None),
        uncounted=tuple(dict.fromkeys(name for _, name, value in unread if value in NOTHING)),
        unread=tuple(
            f"link {link}: {name} {value[:40] or 'nothing'}" for link, name, value in unread if value not in NOTHING
        ),
    )


# https://docs.kernel.org/admin-guide/abi-stable-files.html (sysfs-class-infiniband)
COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)


# Counters of nics.yaml; tests compare the two.
HW_COUNTERS = (
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "max_retry_exceeded",
    "unrecoverable_err",
    "to_retransmits",
    "seq_err_naks_rcvd",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
    "rdma_read_wr_err",
    "rdma_write_wr_err",
    "rx_drops",
    "no_completion_cmds",
    "connect_timeout_cnt",
    "hw_disable_drop_cnt",
    "hw_rx_disable_drop_cnt",
)


def parse_ports(output: Output) -> tuple[PortErrors, ...]:
    """Parse each port that has counters, in the order of their names."""
    ports: dict[tuple[str, int], PortErrors] = {}
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        cells = rest.split("|")
        if kind not in ("counter", "hw") or len(cells) != 4 or not is_whole(cells[1]):
            continue
        key = (cells[0], int(cells[1]))
        port = ports.get(key) or PortErrors(device=key[0], port=key[1], link=False)
        number = int(cells[3]) if is_whole(cells[3]) else None
        counted = {cells[2]: number} if number else {}
        if kind == "hw":
            known = {} if number is None else {cells[2]: number}
            port = msgspec.structs.replace(port, transport={**(port.transport or {}), **known})
        elif cells[2] == "link_downed":
            port = msgspec.structs.replace(port, downed=number, link=True)
        else:
            port = msgspec.structs.replace(port, errors={**port.errors, **counted}, link=True)
        ports[key] = port
    return tuple(ports[key] for key in sorted(ports))


NVLINK_ERRORS = Probe(
    "nvlink_errors",
    'command -v nvidia-smi >/dev/null || exit 127; timeout 25 nvidia-smi nvlink -e 2>&1; echo "@status $?"',
    parse_nvlinks,
    "nvidia-smi nvlink -e",
    knows_missing=True,
)
PORT_ERRORS = Probe(
    "port_errors",
    f"""hw() {{ for c in {" ".join(HW_COUNTERS)}; do
  [ -e "$1/hw_counters/$c" ] || continue
  v=''; read -r v 2>/dev/null <"$1/hw_counters/$c"; echo "hw|$2|$3|$c|$v"
done; }}
for d in /sys/class/infiniband/*; do hw "$d" "${{d##*/}}" 0; done
for p in /sys/class/infiniband/*/ports/[0-9]*; do
  d=${{p%/ports/*}}; hw "$p" "${{d##*/}}" "${{p##*/}}"
  [ -d "$p/counters" ] || continue
  d=${{p%/ports/*}}
  for c in link_downed {" ".join(COUNTERS)}; do
    echo "counter|${{d##*/}}|${{p##*/}}|$c|$(cat "$p/counters/$c" 2>/dev/null)"
  done
done
true""",
    parse_ports,
    "grep . /sys/class/infiniband/*/ports/*/*counters/*",
    blank=r"(counter|hw)\|",
)
