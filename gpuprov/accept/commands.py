"""The command lines of a test between two hosts, and parsing of their output.

Options: perftest's --help and man page (https://github.com/linux-rdma/perftest), rc_pingpong(1), rping(1), ibping(8).
"""

import shlex

import msgspec

from gpuprov.accept.model import Host
from gpuprov.accept.rails import Rail
from gpuprov.capabilities.acceptance.fragment import program_of
from gpuprov.facts.probes.acceptance import Measurement, outputs

# Placeholder, in a command, of the TCP port that the server's host chooses.
PORT = "@PORT@"
# Message size, in bytes, of perftest's *_lat programs: their default.
LATENCY_SIZE = 2
PINGPONG_SIZE = 4096
# Pings of rping and of ibping, which sends one a second.
PINGS, IBPINGS = 20, 5
# Queue pairs of a *_bw test: as many as the runs had from which the catalogue's floors were published.
QUEUES = 2


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One test in one direction on one rail: `client` sends, `server` answers. `skipped` and `problem` say why it does
    not run."""

    test: str
    client: str
    server: str
    client_rail: Rail
    server_rail: Rail
    serve: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    # The server opens a TCP port, which shows that it is ready; otherwise it is given a second.
    listens: bool = True
    seconds: float = 0.0
    size: int = 0
    memory: str = ""
    skipped: str = ""
    problem: str = ""


def make_unit(test: str, client: Host, server: Host, client_rail: Rail, server_rail: Rail) -> Unit:
    """Make the unit of a test from `client` to `server`; sizes and times are the client's."""
    speech = client_rail.speech
    program = program_of(test, "InfiniBand" if speech == "InfiniBand" else "Ethernet")
    made = Unit(test=test, client=client.name, server=server.name, client_rail=client_rail, server_rail=server_rail)
    lacking = [host.name for host in (client, server) if program not in host.tools.programs]
    if lacking:
        return msgspec.structs.replace(
            made, skipped=f"no {program} on {' and '.join(lacking)}: gpuprov apply installs it"
        )
    if "efa" in (client_rail.driver, server_rail.driver):
        # Its queue pairs are UD and SRD: https://github.com/amzn/amzn-drivers/blob/master/kernel/linux/efa/SRD.txt
        reason = (
            f"{client_rail.device} is an EFA, which has no reliable connections (RC), as this test makes; the "
            "NCCL tests use it"
        )
        return msgspec.structs.replace(made, skipped=reason)
    if problem := client_rail.problem or server_rail.problem:
        where = client.name if client_rail.problem else server.name
        return msgspec.structs.replace(made, problem=f"{where}: {problem}")
    if client_rail.address == server_rail.address and program != "ibping":
        reason = f"{client.name} and {server.name} have the same address {client_rail.address}"
        return msgspec.structs.replace(made, problem=reason)
    if test == "ping":
        return _fill_ping(made, program)
    if test == "pingpong":
        return _fill_pingpong(made, client, program)
    return _fill_perftest(made, client, server, program)


def format_commands(unit: Unit) -> str:
    """Format the commands that show the same by hand: on the server's host, then on the client's; with the programs'
    default port."""
    if not unit.ask:
        return ""
    serve, ask = (shlex.join(words).replace(f" -p {PORT}", "") for words in (unit.serve, unit.ask))
    return f"on {unit.server}: {serve}; on {unit.client}: {ask}"


def read_measurement(unit: Unit, text: str) -> Measurement:
    """Parse the unit's measurement from the client's output. Raises Unreadable."""
    measurement = Measurement(
        test=unit.test,
        peer=unit.server,
        device=unit.client_rail.device,
        peer_device=unit.server_rail.device,
        layer="InfiniBand" if unit.client_rail.speech == "InfiniBand" else "Ethernet",
        rate=min(unit.client_rail.rate, unit.server_rail.rate),
        memory=unit.memory,
        size=unit.size,
    )
    if unit.test == "ping":
        sent = IBPINGS if unit.client_rail.speech == "InfiniBand" else PINGS
        by_ib = unit.client_rail.speech == "InfiniBand"
        answered = outputs.ibping(text, sent) if by_ib else outputs.rping(text)
        if not answered and not by_ib:
            raise outputs.Unreadable(outputs.complaint(text))
        lost = round(100 * max(0, sent - answered) / sent, 1)
        return msgspec.structs.replace(measurement, value=lost, unit="% lost", detail=f"{answered} of {sent} answered")
    if unit.test == "pingpong":
        return msgspec.structs.replace(measurement, value=outputs.pingpong(text), unit="us")
    if unit.test.endswith("_lat"):
        return msgspec.structs.replace(measurement, value=outputs.latency(text, unit.size), unit="us")
    return msgspec.structs.replace(measurement, value=outputs.bandwidth(text, unit.size), unit="Gb/s")


def _fill_perftest(made: Unit, client: Host, server: Host, program: str) -> Unit:
    requested = client.block.rdma
    bandwidth = made.test.endswith("_bw")
    size = requested.size if bandwidth else LATENCY_SIZE
    common = ["-F", "-p", PORT, "-s", str(size)]
    # With -D perftest reports no median, by which a latency is judged.
    common += (
        ["--report_gbits", "-q", str(QUEUES), "-D", str(requested.duration)]
        if bandwidth
        else ["-n", str(requested.iterations)]
    )
    by_cm = made.client_rail.speech == "iWARP"
    common += ["-R"] if by_cm else []
    sides, memory = [], "host"
    for host, rail in ((server, made.server_rail), (client, made.client_rail)):
        words = [program, "-d", rail.device, "-i", str(rail.port), *common]
        words += ["-x", str(rail.gid)] if rail.gid is not None and not by_cm else []
        # Alibaba's erdma has no inline data: https://www.alibabacloud.com/help/en/ecs/user-guide/erdma-usage
        words += ["-I", "0"] if rail.driver == "erdma" and not bandwidth and made.test != "read_lat" else []
        if bandwidth and requested.memory == "gpu":
            memory = "gpu"
            flags, why = _choose_cuda_flags(host, rail)
            if why:
                return msgspec.structs.replace(made, skipped=f"{host.name}: {why}")
            words += flags
        sides.append(words)
    return msgspec.structs.replace(
        made,
        serve=tuple(sides[0]),
        ask=(*sides[1], made.server_rail.address),
        listens=not by_cm,
        seconds=float(requested.duration) if bandwidth else 0.0,
        size=size,
        memory=memory if bandwidth else "",
    )


def _choose_cuda_flags(host: Host, rail: Rail) -> tuple[list[str], str]:
    """Return the flags for the memory of the GPU nearest to a port, as far as this perftest lists them; or why there
    are none."""
    flags = host.tools.flags
    if not rail.gpu:
        return [], f"no GPU near {rail.device}"
    if "--use_cuda_bus_id" in flags:
        words = [f"--use_cuda_bus_id={rail.gpu}"]
    elif "--use_cuda" in flags:
        words = [f"--use_cuda={sorted(host.network.gpus).index(rail.gpu)}"]
    else:
        return [], "its perftest is built without CUDA: ib_write_bw --help lists no --use_cuda"
    if "--use_cuda_dmabuf" in flags and not host.tools.peermem:
        words.append("--use_cuda_dmabuf")
    elif not host.tools.peermem:
        return [], "neither nvidia_peermem is loaded nor does its perftest list --use_cuda_dmabuf"
    return words, ""


def _fill_pingpong(made: Unit, client: Host, program: str) -> Unit:
    if made.client_rail.speech == "iWARP":
        return msgspec.structs.replace(made, skipped="ibv_rc_pingpong does not connect by rdma_cm, which iWARP needs")
    common = ["-p", PORT, "-n", str(client.block.rdma.iterations), "-s", str(PINGPONG_SIZE)]
    sides = []
    for rail in (made.server_rail, made.client_rail):
        words = [program, "-d", rail.device, "-i", str(rail.port), *common]
        sides.append([*words, *(["-g", str(rail.gid)] if rail.gid is not None else [])])
    return msgspec.structs.replace(
        made, serve=tuple(sides[0]), ask=(*sides[1], made.server_rail.address), size=PINGPONG_SIZE
    )


def _fill_ping(made: Unit, program: str) -> Unit:
    """Fill in the commands of a ping. ibping's server never ends by itself: it is ended like every server."""
    client_rail, server_rail = made.client_rail, made.server_rail
    if client_rail.speech == "InfiniBand":
        serve = (program, "-S", "-C", server_rail.device, "-P", str(server_rail.port))
        ask = (
            program,
            "-c",
            str(IBPINGS),
            "-C",
            client_rail.device,
            "-P",
            str(client_rail.port),
            "-L",
            str(server_rail.lid),
        )
        return msgspec.structs.replace(made, serve=serve, ask=ask, listens=False, seconds=float(IBPINGS))
    common = ("-p", PORT, "-C", str(PINGS), "-V")
    listen = (program, "-s", "-a", server_rail.address, *common)
    return msgspec.structs.replace(
        made, serve=listen, ask=(program, "-c", "-v", "-a", server_rail.address, *common), listens=False
    )
