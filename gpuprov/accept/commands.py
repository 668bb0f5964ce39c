"""The command lines of a test between two hosts, and how their output is read.

Options: perftest's --help and man page (https://github.com/linux-rdma/perftest), rc_pingpong(1), rping(1), ibping(8).
"""

from __future__ import annotations

import shlex

import msgspec

from gpuprov.accept.model import Host
from gpuprov.accept.rails import Rail
from gpuprov.capabilities.acceptance.fragment import program_of
from gpuprov.probe.acceptance import Measurement, outputs

PORT = "@PORT@"
"""Stands in words for the TCP port that the server's host chooses."""
LATENCY_SIZE = 2
"""Bytes of a message of perftest's *_lat programs, which is their default."""
PINGPONG_SIZE = 4096
PINGS, IBPINGS = 20, 5
"""ibping sends one a second."""
QUEUES = 2
"""Queue pairs of a *_bw test, as those have that the catalogue's floors were published of."""


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One test in one direction on one rail: `client` sends, `server` answers. `skipped` and `problem` say why it does not run.

    `listens`: the server opens a TCP port, by which one sees that it is ready; else it is given a second.
    """

    test: str
    client: str
    server: str
    mine: Rail
    theirs: Rail
    serve: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    listens: bool = True
    seconds: float = 0.0
    size: int = 0
    memory: str = ""
    skipped: str = ""
    problem: str = ""


def unit(test: str, client: Host, server: Host, mine: Rail, theirs: Rail) -> Unit:
    """The unit of a test from `client` to `server`; sizes and times are the client's."""
    speech = mine.speech
    program = program_of(test, "InfiniBand" if speech == "InfiniBand" else "Ethernet")
    made = Unit(test=test, client=client.name, server=server.name, mine=mine, theirs=theirs)
    lacking = [host.name for host in (client, server) if program not in host.tools.found]
    if lacking:
        return msgspec.structs.replace(
            made, skipped=f"no {program} on {' and '.join(lacking)}: gpuprov apply installs it"
        )
    if "efa" in (mine.driver, theirs.driver):
        # Its queue pairs are UD and SRD: https://github.com/amzn/amzn-drivers/blob/master/kernel/linux/efa/SRD.txt
        told = f"{mine.device} is an EFA, which has no reliable connections (RC), as this test makes; the NCCL tests use it"
        return msgspec.structs.replace(made, skipped=told)
    if problem := mine.problem or theirs.problem:
        where = client.name if mine.problem else server.name
        return msgspec.structs.replace(made, problem=f"{where}: {problem}")
    if mine.address == theirs.address and program != "ibping":
        told = f"{client.name} and {server.name} have the same address {mine.address} there"
        return msgspec.structs.replace(made, problem=told)
    if test == "ping":
        return _ping(made, program)
    if test == "pingpong":
        return _pingpong(made, client, program)
    return _perftest(made, client, server, program)


def by_hand(one: Unit) -> str:
    """What a person runs to see the same: on the server's host, then on the client's; with the programs' own default port."""
    if not one.ask:
        return ""
    serve, ask = (shlex.join(words).replace(f" -p {PORT}", "") for words in (one.serve, one.ask))
    return f"on {one.server}: {serve}; on {one.client}: {ask}"


def read(one: Unit, text: str) -> Measurement:
    """The unit's measurement, from what the client printed. Raises Unreadable."""
    found = Measurement(
        test=one.test,
        peer=one.server,
        device=one.mine.device,
        peer_device=one.theirs.device,
        layer="InfiniBand" if one.mine.speech == "InfiniBand" else "Ethernet",
        rate=min(one.mine.rate, one.theirs.rate),
        memory=one.memory,
        size=one.size,
    )
    if one.test == "ping":
        asked = IBPINGS if one.mine.speech == "InfiniBand" else PINGS
        by_ib = one.mine.speech == "InfiniBand"
        answered = outputs.ibping(text, asked) if by_ib else outputs.rping(text)
        if not answered and not by_ib:
            raise outputs.Unreadable(outputs.complaint(text))
        lost = round(100 * max(0, asked - answered) / asked, 1)
        return msgspec.structs.replace(found, value=lost, unit="% lost", detail=f"{answered} of {asked} answered")
    if one.test == "pingpong":
        return msgspec.structs.replace(found, value=outputs.pingpong(text), unit="us")
    if one.test.endswith("_lat"):
        return msgspec.structs.replace(found, value=outputs.latency(text, one.size), unit="us")
    return msgspec.structs.replace(found, value=outputs.bandwidth(text, one.size), unit="Gb/s")


def _perftest(made: Unit, client: Host, server: Host, program: str) -> Unit:
    asked = client.block.rdma
    bandwidth = made.test.endswith("_bw")
    size = asked.size if bandwidth else LATENCY_SIZE
    common = ["-F", "-p", PORT, "-s", str(size)]
    # With -D perftest tells no median, which a latency is judged by.
    common += (
        ["--report_gbits", "-q", str(QUEUES), "-D", str(asked.duration)] if bandwidth else ["-n", str(asked.iterations)]
    )
    by_cm = made.mine.speech == "iWARP"
    common += ["-R"] if by_cm else []
    sides, memory = [], "host"
    for host, rail in ((server, made.theirs), (client, made.mine)):
        words = [program, "-d", rail.device, "-i", str(rail.port), *common]
        words += ["-x", str(rail.gid)] if rail.gid is not None and not by_cm else []
        # Alibaba's erdma has no inline data: https://www.alibabacloud.com/help/en/ecs/user-guide/erdma-usage
        words += ["-I", "0"] if rail.driver == "erdma" and not bandwidth and made.test != "read_lat" else []
        if bandwidth and asked.memory == "gpu":
            memory = "gpu"
            flags, why = _cuda(host, rail)
            if why:
                return msgspec.structs.replace(made, skipped=f"{host.name}: {why}")
            words += flags
        sides.append(words)
    return msgspec.structs.replace(
        made,
        serve=tuple(sides[0]),
        ask=(*sides[1], made.theirs.address),
        listens=not by_cm,
        seconds=float(asked.duration) if bandwidth else 0.0,
        size=size,
        memory=memory if bandwidth else "",
    )


def _cuda(host: Host, rail: Rail) -> tuple[list[str], str]:
    """Flags for the memory of the GPU nearest to a port, as far as this perftest lists them; or why there are none."""
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


def _pingpong(made: Unit, client: Host, program: str) -> Unit:
    if made.mine.speech == "iWARP":
        return msgspec.structs.replace(made, skipped="ibv_rc_pingpong does not connect by rdma_cm, which iWARP needs")
    common = ["-p", PORT, "-n", str(client.block.rdma.iterations), "-s", str(PINGPONG_SIZE)]
    sides = []
    for rail in (made.theirs, made.mine):
        words = [program, "-d", rail.device, "-i", str(rail.port), *common]
        sides.append([*words, *(["-g", str(rail.gid)] if rail.gid is not None else [])])
    return msgspec.structs.replace(
        made, serve=tuple(sides[0]), ask=(*sides[1], made.theirs.address), size=PINGPONG_SIZE
    )


def _ping(made: Unit, program: str) -> Unit:
    """ibping's server never ends by itself: it is ended, as every server is."""
    mine, theirs = made.mine, made.theirs
    if mine.speech == "InfiniBand":
        serve = (program, "-S", "-C", theirs.device, "-P", str(theirs.port))
        ask = (program, "-c", str(IBPINGS), "-C", mine.device, "-P", str(mine.port), "-L", str(theirs.lid))
        return msgspec.structs.replace(made, serve=serve, ask=ask, listens=False, seconds=float(IBPINGS))
    common = ("-p", PORT, "-C", str(PINGS), "-V")
    listen = (program, "-s", "-a", theirs.address, *common)
    return msgspec.structs.replace(
        made, serve=listen, ask=(program, "-c", "-v", "-a", theirs.address, *common), listens=False
    )
