"""NVIDIA's doca-host package as a stand-in: a package with a repository of DOCA-OFED's packages, all of them stand-ins.

Names of packages, programs and DKMS trees: https://github.com/Azure/azhpc-images (install_doca.sh,
refresh_ofed_dkms.sh), https://github.com/Mellanox/mlnx-tools; path of the repository:
https://docs.nvidia.com/doca/sdk/DOCA-Host+Installation+and+Upgrade
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gpuprov.simulate import debs
from gpuprov.simulate.parts.base import File, text
from gpuprov.simulate.repository import index as repository_index
from gpuprov.simulate.repository import signing
from gpuprov.simulate.repository.index import Release
from gpuprov.simulate.standins import hpcx
from gpuprov.simulate.standins.model import Standin

FILES = Path(__file__).parents[1] / "parts" / "ofed_files"
DOCA, OFED, BUILD = "3.2.1", "25.10", "1.7.1"
VERSION = f"{OFED}.OFED.{OFED}.{BUILD}.1-1"
END = "2510171"
TREE = f"{OFED}.OFED.{OFED}.{BUILD}.1"
HOME = f"/usr/share/doca-host-{DOCA}"
# Shell that gives a host whose description has `ofed` the package source of doca-host.
INSTALL = "dpkg -i /usr/share/gpuprov-sim/repository/doca/*.deb > /dev/null && apt-get -qq update"
KEYRING = "/usr/share/keyrings/doca-host.gpg"
UNIT = """\
# A stand-in of gpuprov's simulated hosts.
[Unit]
Description=openibd - configure Mellanox devices
After=local-fs.target gpuprov-sim-silicon.service gpuprov-sim-rdma-cm.service
Before=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/etc/init.d/openibd start
ExecStop=/etc/init.d/openibd stop

[Install]
WantedBy=sysinit.target
"""
CONF = """\
# A stand-in of gpuprov's simulated hosts.
# Start HCA driver upon boot
ONBOOT=yes
# Load UMAD module
UMAD_LOAD=yes
# Load UVERBS module
UVERBS_LOAD=yes
# Load RDMA_CM module
RDMA_CM_LOAD=yes
# Load RDMA_UCM module
RDMA_UCM_LOAD=yes
# Load MLX5 modules
MLX5_LOAD=yes
# Load IPoIB
IPOIB_LOAD=yes
# Enable IPoIB Connected Mode
SET_IPOIB_CM=auto
"""
INFO = f"""\
#!/bin/sh
# A stand-in of gpuprov's simulated hosts for ofed_info.
echo "OFED-internal-{OFED}-{BUILD}:"
"""
SOURCE = f"# Of a gpuprov stand-in for doca-host.\ndeb [signed-by={KEYRING}] file:{HOME}/repo main main\n"
# The real one is built with symbols for others in /usr/src/ofa_kernel; the driver's build looks there.
SYMBOLS = """\
#!/bin/sh
# Of a gpuprov stand-in: keeps the symbols of this build where builds of others look for them.
folder=/usr/src/ofa_kernel/$(uname -m)/$1
mkdir -p "$folder" && cp Module.symvers "$folder/" && ln -sfn "$(uname -m)/$1" /usr/src/ofa_kernel/default
"""
MODULES = {
    "mlnx-ofed-kernel": ("ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib"),
    "iser": ("ib_iser",),
    "isert": ("ib_isert",),
    "srp": ("ib_srp",),
}


def write(folder: Path) -> Path:
    """Write the doca-host package for apt, and its checksum beside it (FILE.sha256)."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        repo = Path(temporary) / "repo"
        debs.build(repo / "pool", packages())
        with signing.signer(signing.VENDOR) as signer:
            repository_index.apt(repo, Release("NVIDIA", "DOCA-HOST", "main", "main"), signer)
            signer.export(Path(temporary))
        files = {
            f"{HOME}/repo/{path.relative_to(repo)}": File(path) for path in sorted(repo.rglob("*")) if path.is_file()
        }
        files[KEYRING] = File(Path(temporary) / f"{signing.VENDOR}.gpg")
        files["/etc/apt/sources.list.d/doca.list"] = text(SOURCE)
        (deb,) = debs.build(
            folder, [Standin("doca-host", f"{DOCA}-010000-{OFED}", "NVIDIA DOCA host repository", files)]
        )
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    (folder / f"{deb.name}.sha256").write_text(f"{digest}  {deb.name}\n", encoding="utf-8")
    return deb


def packages() -> Iterable[Standin]:
    """Return the repository's packages; its dkms is newer than the distribution's but unusable, so that installing it
    shows up."""
    trees = [f"{name}-dkms" for name in MODULES]
    own = [*trees, "mlnx-ofed-kernel-utils", "mlnx-tools", "ofed-scripts"]
    mpi = [f"{package.name} (= {package.version})" for package in hpcx.build_packages(END)]
    exact = (*(f"{name} (= {VERSION})" for name in own), *mpi, "rdma-core (= 2510.0.11-1)", "mft")
    tools = {f"/usr/bin/{name}": File(FILES / name, 0o755) for name in ("mlnx_qos",)}
    tools |= {f"/usr/sbin/{name}": File(FILES / name, 0o755) for name in ("cma_roce_mode", "cma_roce_tos")}
    return [
        *(_dkms(name) for name in MODULES),
        Standin(
            "mlnx-ofed-kernel-utils",
            VERSION,
            "openibd of DOCA-OFED",
            {
                "/etc/init.d/openibd": File(FILES / "openibd", 0o755),
                "/etc/infiniband/openib.conf": text(CONF),
                "/lib/systemd/system/openibd.service": text(UNIT),
            },
            scripts={"postinst": "#!/bin/sh\nset -e\n[ ! -d /run/systemd/system ] || systemctl daemon-reload\n"},
        ),
        Standin("mlnx-tools", VERSION, "mlnx_qos, cma_roce_mode, cma_roce_tos", tools),
        Standin("ofed-scripts", VERSION, "ofed_info", {"/usr/bin/ofed_info": text(INFO, 0o755)}),
        Standin("mft", "4.34.0-145", "DOCA's mft: an empty package"),
        *hpcx.build_packages(END),
        Standin(
            "rdma-core",
            "2510.0.11-1",
            "DOCA's rdma-core: its list of modules",
            {"/etc/rdma/modules/infiniband.conf": text("ib_ipoib\nib_umad\n")},
        ),
        Standin(
            "dkms", "9.9.9-1", "DOCA's dkms: builds nothing", {"/usr/sbin/dkms": text("#!/bin/sh\nexit 1\n", 0o755)}
        ),
        Standin("doca-ofed", f"{DOCA}-010000", "DOCA-OFED: all of it", requires=exact),
    ]


def _dkms(name: str) -> Standin:
    """Return a package of DKMS modules. Like the real one it is built for kernels other than the running one only on
    request."""
    home, modules = f"/usr/src/{name}-{TREE}", MODULES[name]
    core = name == "mlnx-ofed-kernel"
    conf = [
        f'PACKAGE_NAME="{name}"',
        f'PACKAGE_VERSION="{TREE}"',
        "AUTOINSTALL=yes",
        'MAKE[0]="make -C ${kernel_source_dir} M=${dkms_tree}/' + f'{name}/{TREE}/build modules"',
        'CLEAN="true"',
    ]
    conf += ['POST_BUILD="symbols.sh ${kernelver}"'] if core else []
    for index, module in enumerate(modules):
        conf += [f'BUILT_MODULE_NAME[{index}]="{module}"', f'DEST_MODULE_LOCATION[{index}]="/updates"']
    files = {
        f"{home}/{module}.c": File(FILES / f"{module if module in ('ib_core', 'ib_uverbs') else 'empty'}.c")
        for module in modules
    }
    files[f"{home}/dkms.conf"] = text("\n".join(["# A stand-in of gpuprov's simulated hosts.", *conf]) + "\n")
    flags = f'ccflags-y += -DOFED_VERSION=\\"{OFED}-{BUILD}\\"\n'
    files[f"{home}/Kbuild"] = text(flags + "".join(f"obj-m += {module}.o\n" for module in modules))
    files |= {f"{home}/symbols.sh": text(SYMBOLS, 0o755)} if core else {}
    add = f"dkms status -m {name} -v {TREE} | grep -q . || dkms add -m {name} -v {TREE}"
    scripts = {
        "postinst": f'#!/bin/sh\nset -e\n[ "$1" != configure ] || {add}\n',
        "prerm": f"#!/bin/sh\ndkms remove -m {name} -v {TREE} --all || true\n",
    }
    return Standin(
        f"{name}-dkms",
        VERSION,
        f"DOCA-OFED: {', '.join(modules)}, built by DKMS",
        files,
        requires=("dkms", *(() if core else (f"mlnx-ofed-kernel-dkms (= {VERSION})",))),
        scripts=scripts,
    )
