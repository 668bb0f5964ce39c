"""Open MPI, UCX, HPC-X and NCCL's SHARP plugin on a host: packages, what its programs print, what its libraries
need."""

import re
from typing import Any

import msgspec

from gpuprov.catalog import hpc as catalogue
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.software import rpm
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_index, parse_packages
from gpuprov.host_code import hpcx

DEBS = "openmpi openmpi-bin ucx ucx-utils libucx0"
RPMS = "openmpi ucx ucx-ib ucx-rdmacm"
NAMES = (*DEBS.split(), *RPMS.split()[2:])


class Mpi(msgspec.Struct, frozen=True, kw_only=True):
    """An mpirun: the first line that it printed, whether ompi_info lists UCX, and whether it was built with CUDA."""

    path: str
    output: str = ""
    ucx: bool = False
    cuda: bool = False

    @property
    def works(self) -> bool:
        # mpirun.openmpi (OpenRTE) 4.1.4
        return bool(re.search(r"\((Open MPI|OpenRTE)\) [0-9]", self.output))


class Hpc(msgspec.Struct, frozen=True, kw_only=True):
    """`link`: where /opt/hpcx leads; `folder`: it is a folder itself; `mark`: the record of who unpacked it; `foreign`:
    the release of the spec is there, and gpuprov did not unpack it. `conf`: the file with the linker's folders is
    there. `mpis`: the programs of the requested kind. UCX's own version, path, transports and devices. `plugins`: files
    of libnccl-net.so in the linker's order; of the first one, `lost`: libraries that the linker does not find, `needs`:
    files of SHARP's and UCX's."""

    link: str = ""
    folder: bool = False
    mark: str = ""
    foreign: bool = False
    conf: bool = False
    mpis: tuple[Mpi, ...] = ()
    ucx: str = ""
    ucx_path: str = ""
    ucx_output: str = ""
    transports: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    needs: dict[str, str] = {}


def parse(output: Output) -> Hpc:
    rows = output.rows()
    first = {kind: lines[0].strip() for kind, lines in rows.items()}
    mpis = []
    for row in rows.get("mpi", ()):
        path, _, text = row.partition("|")
        cuda = f"{path}|true" in rows.get("cuda", ())
        mpis.append(Mpi(path=path, output=text.strip(), ucx=path in rows.get("pml", ()), cuda=cuda))
    return Hpc(
        link=first.get("link", ""),
        folder="folder" in rows,
        mark=first.get("mark", ""),
        foreign="foreign" in rows,
        conf="conf" in rows,
        mpis=tuple(mpis),
        ucx=first.get("version", ""),
        ucx_path=first.get("library", ""),
        ucx_output=first.get("ucx", ""),
        transports=tuple(rows.get("transport", ())),
        devices=tuple(dict.fromkeys(name.partition(":")[0] for name in rows.get("device", ()))),
        plugins=tuple(rows.get("plugin", ())),
        lost=tuple(rows.get("lost", ())),
        needs=dict(row.split("|", 1) for row in rows.get("needs", ()) if "|" in row),
    )


def get_request(host: Any) -> dict[str, str]:
    """Return the variables of the script: the requested Open MPI, and the folder of the named HPC-X."""
    block = host.capabilities["hpc"]
    archive = catalogue.parse_archive(block.hpcx.url or block.hpcx.file)
    return {"mpi": block.mpi, "release": archive.folder if archive else ""}


PACKAGES = Probe(
    "hpc_packages",
    build_packages_script(DEBS, "|".join(RPMS.split())),
    parse_packages,
    f"dpkg -l {DEBS}; rpm -q {RPMS}",
    blank=PACKAGE_LISTS,
)
# Offered versions of Open MPI and UCX, from the lists that the host has fetched.
INDEX = Probe(
    "hpc_index",
    by_family(f"apt-cache madison {DEBS} 2>/dev/null; true", rpm.search(*RPMS.split()), "true"),
    parse_index,
    f"apt-cache madison {DEBS}; dnf -C repoquery --showduplicates {RPMS}",
)
# What the programs of the requested Open MPI and of its UCX print, and what NCCL's plugin is linked with.
HPC = Probe(
    "hpc",
    f"""l={catalogue.LINK} home={hpcx.HOME} mark={hpcx.MARK} so={catalogue.PLUGIN} conf={catalogue.LINKER}
places='{" ".join(dict.fromkeys(row.mpirun for row in catalogue.read_hpc_file().programs))}'
"""
    r"""echo "asked|${mpi:-}"
if [ -L "$l" ]; then echo "link|$(readlink -f "$l")"; elif [ -d "$l" ]; then echo 'folder|'; fi
[ ! -f "$l/$mark" ] || echo "mark|$(head -c 4096 "$l/$mark" | tr -d '\n')"
[ -z "${release:-}" ] || [ ! -d "$home/$release" ] || [ -e "$home/$release/$mark" ] || echo 'foreign|'
[ ! -e "$conf" ] || echo 'conf|'
run() { timeout -k 5 60 "$@" 2>&1 </dev/null; }
u=$(command -v ucx_info)
if [ "${mpi:-}" = hpcx ]; then
  places=$l/ompi/bin/mpirun u=$l/ucx/bin/ucx_info
  # HPC-X is not where it was built: its own script says where Open MPI finds its files.
  run() { timeout -k 5 60 bash -c '. "$0/hpcx-init.sh" && hpcx_load && exec "$@"' "$l" "$@" 2>&1 </dev/null; }
fi
cd /
for p in $places; do
  [ -x "$p" ] || continue
  echo "mpi|$p|$(run "$p" --version | grep . | head -n 1)"
  run "${p%mpirun}ompi_info" --parsable --all |
    sed -n "s#^mca:mpi:base:param:mpi_built_with_cuda_support:value:#cuda|$p|#p
    s#^mca:pml:ucx:version:.*#pml|$p#p" | sort -u
done
if [ -n "$u" ] && [ -x "$u" ]; then
  echo "ucx|$(run "$u" -v | grep . | head -n 1)"
  run "$u" -v | sed -n 's/^# \(Library v\|V\)ersion:* */version|/p
    s/^# Library path: */library|/p'
  run "$u" -d | sed -n 's/^# *Transport: */transport|/p; s/^# *Device: */device|/p' | sort -u
fi
PATH=$PATH:/usr/sbin:/sbin
f=$(ldconfig -p 2>/dev/null | sed -n "s#^[[:space:]]*$so .*=> ##p")
[ -z "$f" ] || {
  echo "$f" | sed 's/^/plugin|/'
  ldd "$(echo "$f" | head -n 1)" 2>/dev/null | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/lost|\1/p
    s/^[[:space:]]*\(lib\(sharp_coll\|ucp\)[^ ]*\) => \([^ ]*\).*/needs|\1|\3/p'
}
true""",
    parse,
    "ls -l /opt/hpcx; mpirun --version; ompi_info --parsable --all; ucx_info -v; ucx_info -d; ldd libnccl-net.so",
    asks=get_request,
    speaks=True,
    blank=r"asked\|",
)
