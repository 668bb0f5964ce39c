"""Rules for `rdma.ofed` that hold on any host."""

from collections.abc import Iterable

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.ofed.fragment import Ofed
from gpuprov.spec import named
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE: Path = ("rdma", "ofed")
problem = report_under(*HERE)
AUTO = "SET_IPOIB_CM"


def rules(_host: HostSpec, block: Rdma) -> Iterable[Problem]:
    """Yield errors for what cannot be installed or configured, and a warning for what defeats the stack."""
    ofed = block.ofed
    if block.own_stack != "doca-ofed":
        return
    yield from _check_source(ofed)
    for key, value in ofed.openib_conf.items():
        place = (*HERE, "openib_conf", key)
        if value == "auto" and key != AUTO:
            yield Problem(path=place, message=f"rdma.ofed.openib_conf.{key} is auto", fix="allowed: yes, no")
    if ofed.openib_conf.get("ONBOOT") is False:
        message = "is no: openibd loads nothing at boot, and the host comes up without RDMA"
        yield problem("openib_conf.ONBOOT", message, "yes, or leave it out")
    if ofed.openib_conf.get("FORCE_MODE") is True:
        fix = "leave it out: OFED's modules are built for every kernel"
        message = "is yes: openibd also loads modules that are not OFED's, which then go unnoticed"
        yield problem("openib_conf.FORCE_MODE", message, fix, warning=True)
    if block.ipoib and ofed.openib_conf.get("IPOIB_LOAD") is False:
        yield problem("openib_conf.IPOIB_LOAD", "is no, and rdma.ipoib is true", "yes, or ipoib: false")


def _check_source(ofed: Ofed) -> Iterable[Problem]:
    if ofed.url and ofed.file:
        yield problem("", "has both url and file", "one of them")
    elif (ofed.url or ofed.file) and not ofed.sha256:
        message = "rdma.ofed names a package without its sha256: whatever comes would be installed"
        fix = "sha256: the 64 digits that NVIDIA's download page shows, or sha256sum of the file"
        yield Problem(path=(*HERE, "sha256"), message=message, fix=fix)
    elif ofed.sha256 and not (ofed.url or ofed.file):
        yield problem("sha256", "without url or file", "url: https://... of the doca-host package, or its file")
    if ofed.file and not ofed.url:
        if not ofed.file.endswith((".deb", ".rpm")):
            yield problem("file", f"is {ofed.file}", "the doca-host package, .deb or .rpm")
        elif why := named.explain_unusable(ofed.file, ofed.sha256):
            message = f"rdma.ofed.file {ofed.file} {why}"
            yield Problem(path=(*HERE, "file"), message=message, fix="put the doca-host package there")
