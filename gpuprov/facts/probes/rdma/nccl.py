"""NCCL's configuration on a host: its files, the login environment, the files that they name, and the topology file
with its PCI functions."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import environment

# Text of a comment that gpuprov writes into its own file.
MARK = "rdma.nccl.settings"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A line NAME=VALUE of a file."""

    file: str
    name: str
    value: str


class NcclHost(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration."""

    # Of /etc/nccl.conf, without comments (None: no such file).
    lines: tuple[str, ...] | None = None
    # gpuprov wrote it.
    ours: bool = False
    # Settings that override /etc/nccl.conf: root's and new users' .nccl.conf, the file that NCCL_CONF_FILE names, and
    # the environment of logins and services.
    others: tuple[Setting, ...] = ()
    # Those that /etc/nccl.conf, NCCL_CONF_FILE and the spec name, and whether each exists.
    files: dict[str, bool] = {}
    # Libnccl-net*.so that the dynamic linker finds.
    plugins: tuple[str, ...] = ()
    # Network interfaces.
    netdevs: tuple[str, ...] = ()


def parse(output: Output) -> NcclHost:
    many = output.rows()
    others = []
    for row in many.get("other", ()):
        file, _, text = row.partition("|")
        # /etc/nccl.conf of Azure's NDv4 (tests/real/nccl-conf-azure-ndv4):
        #     NCCL_IB_PCI_RELAXED_ORDERING=1
        #     NCCL_TOPO_FILE=/opt/microsoft/ndv4/topo.xml
        name, _, value = text.partition("=")
        others.append(Setting(file=file, name=name, value=value.strip().strip("\"'")))
    return NcclHost(
        lines=tuple(many["line"][1:]) if "line" in many else None,
        ours="ours" in many,
        others=tuple(others),
        files={name: exists == "1" for name, _, exists in (row.rpartition("|") for row in many.get("file", ()))},
        plugins=tuple(many.get("plugin", ())),
        netdevs=tuple(many.get("netdev", ())),
    )


# The environment counts first, then NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf: setEnvFile() in
# https://github.com/NVIDIA/nccl/blob/master/src/misc/param.cc
NCCL = Probe(
    "nccl",
    r"""c=/etc/nccl.conf
[ -e $c ] && { echo =; cat $c; } | sed -n '/^#/d; s/\r$//; /=/s/^/line|/p'
grep -qs MARK $c && echo 'ours|'
o=$(ENVIRONMENT)
[ -n "$o" ] && echo "$o"
e=$(echo "$o" | sed -n 's/^[^|]*|[^|]*|NCCL_CONF_FILE=["'\'']\{0,1\}\([^"'\'' ]*\).*/\1/p' | tail -n 1)
for f in /root/.nccl.conf /etc/skel/.nccl.conf "$e"; do
  [ -n "$f" ] && [ -f "$f" ] && sed -n "s#^[[:space:]]*\(NCCL_[A-Z0-9_]*=.*\)#other|$f|\1#p" "$f"
done
set -f
for f in "$e" ${asked:-} $(sed -n 's/^NCCL_TOPO_FILE=//p; s/^NCCL_NET_PLUGIN=\(\/.*\)/\1/p' $c 2>/dev/null); do
  [ -n "$f" ] && { [ -f "$f" ] && echo "file|$f|1" || echo "file|$f|0"; }
done
set +f
PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null |
  sed -n 's/^[[:space:]]*\(libnccl-net[^ ]*\.so\)[ .0-9].*/plugin|\1/p' | sort -u
ls /sys/class/net 2>/dev/null | sed 's/^/netdev|/'
true""".replace("MARK", MARK).replace("ENVIRONMENT", environment.build_environment_script("other", "NCCL_")),
    parse,
    f"cat /etc/nccl.conf /root/.nccl.conf; grep -r NCCL_ {environment.SHOWN}; ldconfig -p | grep libnccl-net",
    asks=lambda host: {"asked": " ".join(host.capabilities["rdma"].nccl.paths)},
    speaks=True,
)


class TopologyFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    # Empty if /etc/nccl.conf names none.
    path: str = ""
    # None if there is no such file.
    text: str | None = None
    sha256: str = ""
    # Class by address.
    functions: dict[str, str] = {}


def parse_topology(output: Output) -> TopologyFile:
    rows = output.rows()
    return TopologyFile(
        path=rows.get("path", [""])[-1],
        text="\n".join(rows.get("text", ())) if "sum" in rows else None,
        sha256=rows.get("sum", [""])[-1].partition(" ")[0],
        functions={address: class_ for address, _, class_ in (line.partition("|") for line in rows.get("pci", ()))},
    )


# The topology file. If two lines name one, NCCL uses the first: gpuprov.capabilities.rdma.nccl.conf.
NCCL_TOPOLOGY = Probe(
    "nccl_topology",
    r"""f=$(sed -n 's/\r$//; s/^NCCL_TOPO_FILE=//p' /etc/nccl.conf 2>/dev/null | head -n 1)
[ -n "$f" ] || exit 0
echo "path|$f"
[ -f "$f" ] && { echo "sum|$(sha256sum "$f")"; head -c 1048577 "$f" | sed 's/^/text|/'; echo; }
for d in /sys/bus/pci/devices/*; do
  read -r c < "$d/class" 2>/dev/null || continue
  case $c in 0x02* | 0x0300* | 0x0302*) echo "pci|${d##*/}|$c" ;; esac
done
true""",
    parse_topology,
    "cat $(sed -n 's/^NCCL_TOPO_FILE=//p' /etc/nccl.conf); lspci -D | grep -iE 'nvidia|infiniband|ethernet'",
)
