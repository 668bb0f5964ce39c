"""Facts of a host for acceptance tests: tools, compilers, addresses, PCI paths, users of its HCAs, and the last
measurements."""

import re

import msgspec

from gpuprov.catalog.acceptance import FOLDER, RESULT
from gpuprov.core.safe_parse import Unreadable, is_whole, parse_typed_json
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_packages

# Programs of acceptance tests, as the catalogue and the `acceptance` block name them.
PROGRAMS = (
    "ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_read_lat ib_send_lat rping ibv_rc_pingpong ibping "
    "nvbandwidth dcgmi mpirun "
    "all_reduce_perf all_gather_perf reduce_scatter_perf alltoall_perf broadcast_perf reduce_perf sendrecv_perf "
    "stress-ng"
)


class Tools(msgspec.Struct, frozen=True):
    """Tools on the host."""

    # Paths of programs by name.
    programs: dict[str, str] = {}
    # The CUDA options that `ib_write_bw --help` lists.
    flags: tuple[str, ...] = ()
    # By folder that the role built, the libraries that its program lacks (empty: it would start).
    built: dict[str, tuple[str, ...]] = {}
    peermem: bool = False
    python: bool = False


class Network(msgspec.Struct, frozen=True):
    """IPv4 addresses by network interface, the address that packets to other networks leave with, and the places of
    PCI functions in the tree."""

    addresses: dict[str, tuple[str, ...]] = {}
    main: str = ""
    gpus: dict[str, str] = {}
    hcas: dict[str, str] = {}


class User(msgspec.Struct, frozen=True):
    """A process that has an RDMA device open."""

    pid: int
    command: str


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A measured value and its conditions; or, in `problem`, the reason why there is no value. `peer`, `device`,
    `peer_device`: for a test between two hosts, from the client's side. `rate`: the slower port's, in Gb/s; `layer`:
    its link layer. `model` and `gpus` are of a test of GPUs. `size` is in bytes. `gdrdma`: between hosts NCCL read
    and wrote GPU memory directly. `at` is seconds since 1970 by the controller's clock. `detail`: other output of
    the program."""

    test: str
    at: float = 0.0
    value: float = 0.0
    unit: str = ""
    peer: str = ""
    device: str = ""
    peer_device: str = ""
    layer: str = ""
    rate: float = 0.0
    memory: str = ""
    size: int = 0
    model: str = ""
    gpus: int = 0
    gdrdma: bool = False
    detail: str = ""
    problem: str = ""
    skipped: str = ""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The stored result of the last run of each acceptance test on a host."""

    measurements: tuple[Measurement, ...] = ()
    # It cannot be read.
    damaged: str = ""


def parse_tools(output: Output) -> Tools:
    rows = output.rows()
    pairs = {kind: [line.partition("|")[::2] for line in rows.get(kind, ())] for kind in ("tool", "built")}
    return Tools(
        dict(pairs["tool"]),
        tuple(line.partition("|")[0] for line in rows.get("flag", ())),
        {name: tuple(more.split()) for name, more in pairs["built"]},
        "peermem" in rows,
        "python" in rows,
    )


def parse_network(output: Output) -> Network:
    addresses: dict[str, list[str]] = {}
    paths: dict[str, dict[str, str]] = {"gpu": {}, "hca": {}}
    main = ""
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        name, _, more = rest.partition("|")
        if kind == "address" and _is_ipv4(address := more.partition("/")[0]):
            addresses.setdefault(name, []).append(address)
        elif kind == "main" and _is_ipv4(name):
            main = name
        elif kind in paths and more.startswith("/"):
            paths[kind][name] = more
    return Network({name: tuple(cidrs) for name, cidrs in addresses.items()}, main, paths["gpu"], paths["hca"])


def _is_ipv4(text: str) -> bool:
    """Return whether the text is an IPv4 address and nothing else: other hosts are given it."""
    from ipaddress import AddressValueError, IPv4Address

    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True


def parse_users(output: Output) -> tuple[User, ...]:
    rows = (line.partition("|") for line in output.text.splitlines())
    return tuple(User(int(pid), command) for pid, _, command in rows if is_whole(pid))


def parse_record(output: Output) -> Record | None:
    if not output.text.strip():
        return None
    try:
        return parse_typed_json(output.text, Record)
    except Unreadable as error:
        return Record(damaged=str(error))


TOOLS = Probe(
    "acceptance_tools",
    f"""for p in {PROGRAMS}; do w=$(command -v $p) && echo "tool|$p|$w"; done
command -v ib_write_bw >/dev/null && ib_write_bw --help 2>&1 |
  grep -o -e '--use_cuda[a-z_]*' | sort -u | sed 's/^/flag|/'
for d in {FOLDER}/*/; do
  [ -e "$d/built" ] || continue
  n=${{d%/}}
  echo "built|${{n##*/}}|$(ldd "$d/$(cat "$d/built")" 2>&1 | sed -n 's/^[[:space:]]*\\(.*\\) => not found/\\1/p' | tr '\\n' ' ')"
done
[ -d /sys/module/nvidia_peermem ] && echo 'peermem|'
for p in python3 /usr/libexec/platform-python; do command -v $p >/dev/null && echo 'python|' && break; done
true""",
    parse_tools,
    f"command -v ib_write_bw rping ibping all_reduce_perf nvbandwidth dcgmi; ls {FOLDER}",
)
# 192.0.2.1 belongs to a range that no host has (RFC 5737), so the route to it is the default route.
NETWORK = Probe(
    "acceptance_network",
    r"""ip -4 -o addr show scope global 2>/dev/null | sed -n 's/^[0-9]*: *\([^ ]*\) *inet \([^ ]*\).*/address|\1|\2/p'
ip -4 -o route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/main|\1/p'
for d in /sys/bus/pci/devices/*; do
  read -r v <"$d/vendor" && [ "$v" = 0x10de ] && read -r v <"$d/class" || continue
  case $v in 0x03*) echo "gpu|${d##*/}|$(readlink -f "$d")" ;; esac
done
for d in /sys/class/infiniband/*; do [ -e "$d/device" ] && echo "hca|${d##*/}|$(readlink -f "$d/device")"; done
true""",
    parse_network,
    "ip -4 addr; ip route get 192.0.2.1; lspci -tv",
)
# Processes that hold an RDMA device for verbs; programs that only manage the fabric (opensm) hold none.
USERS = Probe(
    "rdma_users",
    r"""find /proc/[0-9]*/fd -lname '/dev/infiniband/uverbs*' -printf '%h\n' 2>/dev/null | sort -u | while read -r f; do
  p=${f%/fd}; c=
  read -r c <"$p/comm" 2>/dev/null
  echo "${p#/proc/}|$c"
done""",
    parse_users,
    "fuser -v /dev/infiniband/uverbs*",
)
LAST = Probe("acceptance_result", f"cat {RESULT} 2>/dev/null; true", parse_record, f"cat {RESULT}", own=True)


DEBIAN = (
    "perftest",
    "rdmacm-utils",
    "ibverbs-utils",
    "infiniband-diags",
    "build-essential",
    "libnccl-dev",
    "cmake",
    "libboost-program-options-dev",
    "stress-ng",
)
# Packages that the tools and their builds need, as in the catalogue.
RPM = (
    "perftest",
    "librdmacm-utils",
    "libibverbs-utils",
    "infiniband-diags",
    "gcc-c++",
    "make",
    "libnccl-devel",
    "cmake",
    "boost-devel",
    "stress-ng",
)


def parse(output: Output) -> str:
    path = output.text.strip()
    if path and not re.fullmatch(r"/\S+", path):
        raise ProbeFailed(f"no path of a program: {path[:80]!r}")
    return path


# The path of nvcc, empty for none: NVIDIA's packages put it below /usr/local/cuda, which is not in PATH.
BUILD = Probe(
    "acceptance_build",
    "command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null; true",
    parse,
    "command -v nvcc; ls /usr/local/cuda/bin/nvcc",
)
# The path of MPI's compiler, by which the build finds its headers; empty for none.
MPICC = Probe("acceptance_mpicc", "command -v mpicc; true", parse, "command -v mpicc")
# Installed packages among DEBIAN and RPM.
PACKAGES = Probe(
    "acceptance_packages",
    build_packages_script(" ".join(DEBIAN), "|".join(RPM).replace("+", "[+]")),
    parse_packages,
    f"dpkg -l {' '.join(DEBIAN)}; rpm -q {' '.join(RPM)}",
    blank=PACKAGE_LISTS,
)
