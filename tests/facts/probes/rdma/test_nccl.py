"""The probe of NCCL's files, run on files as hosts have them."""

from __future__ import annotations

from pathlib import Path

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.rdma.nccl import NCCL, NcclHost, Setting, parse
from gpuprov.spec.model import HostSpec
from tests.facts.probes.rdma.erdma_tree import run, write


def read(root: Path, probe: Probe[NcclHost] = NCCL) -> NcclHost:
    script = probe.script.replace("c=/etc", f"c={root}/etc").replace("/root/", f"{root}/root/")
    done = run(root, script, ldconfig="printf '\\tlibnccl-net.so (libc6,x86-64) => /opt/libnccl-net.so\\n'")
    assert done.returncode == 0, done.stderr
    return parse(Output(done.stdout))


def test_files_and_environment(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    write(tmp_path, {
        "etc/nccl.conf": "# a comment\r\nNCCL_IB_HCA==mlx5_0\r\n\nno "
                         f"variable\nNCCL_TOPO_FILE={own}\nNCCL_NET_PLUGIN=/opt/x.so\n",
        "root/.nccl.conf": "NCCL_DEBUG=INFO\n",
        "etc/environment": f'PATH=/bin\nNCCL_IB_HCA="mlx5"\nNCCL_CONF_FILE={own}\n',
        "etc/profile.d/site.sh": "export NCCL_IB_GID_INDEX=3\n",
        "own.conf": "NCCL_IB_TC=106\n",
        "sys/class/net/eth0/address": "02:16:3e:00:00:01\n",
    })  # fmt: skip
    state = read(tmp_path)
    assert state.lines == ("NCCL_IB_HCA==mlx5_0", f"NCCL_TOPO_FILE={own}", "NCCL_NET_PLUGIN=/opt/x.so")
    assert Setting(file=f"{tmp_path}/etc/environment", name="NCCL_IB_HCA", value="mlx5") in state.others
    told = {(one.file.removeprefix(f"{tmp_path}/"), one.name, one.value) for one in state.others}
    assert {("root/.nccl.conf", "NCCL_DEBUG", "INFO"), ("own.conf", "NCCL_IB_TC", "106")} <= told
    assert ("etc/profile.d/site.sh", "NCCL_IB_GID_INDEX", "3") in told
    assert state.files == {str(own): True, "/opt/x.so": False}
    assert (state.plugins, state.netdevs) == (("libnccl-net.so",), ("eth0",))


def test_no_file(tmp_path: Path) -> None:
    state = read(tmp_path)
    assert (state.lines, state.others, state.files) == (None, (), {})


def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    write(tmp_path, {"etc/nccl.conf": "# nothing\n"})
    assert read(tmp_path).lines == ()


def test_what_the_spec_names_is_looked_for_before_there_is_a_file(tmp_path: Path) -> None:
    """Also a name with what a shell would take for more than itself."""
    write(tmp_path, {"there.xml": "<system/>\n"})
    for name, found in (("there.xml", True), ("no.xml", False), ("*.xml", False), ("$(id).xml", False)):
        path = f"{tmp_path}/{name}"
        block = Rdma(nccl=Nccl(topo_file=path))
        state = read(tmp_path, NCCL.of(HostSpec(name="gpu1", capabilities={"rdma": block})))
        assert (state.lines, state.files) == (None, {path: found})


def test_a_file_of_gpuprovs_is_known_by_its_comment(tmp_path: Path) -> None:
    write(tmp_path, {"etc/nccl.conf": "# more variables: rdma.nccl.settings.\nNCCL_DEBUG=INFO\n"})
    assert read(tmp_path).ours
    write(tmp_path, {"etc/nccl.conf": "NCCL_DEBUG=INFO\n"})
    assert not read(tmp_path).ours
