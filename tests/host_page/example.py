"""A host for its page: eight H100 with an Xid, a narrow link and a MIG layout; what gpuprov applied, and who changed
it."""

from __future__ import annotations

import json

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.health import watched
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.host_page.read import ReadHost
from gpuprov.render import digests
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import evaluate
from tests.capabilities import health_host, mig_host
from tests.capabilities.asking import good
from tests.hardware.topology.machines import hgx_h100

IDENTITY = (
    "name|node17\nvendor|Supermicro\nproduct|SYS-821GE-TNHR\nserial|S12345X\nboard_serial|UM23AS\nfirmware|2.1\n"
    "firmware_date|03/26/2025\nboot_id|6f1c0c3e-0000-4000-8000-000000000001\nbooted|1763000000\n"
)
HISTORY = """@zone +0000
@apt
Start-Date: 2025-11-21  09:00:00
Commandline: apt upgrade
Requested-By: alice (1000)
Upgrade: nvidia-persistenced:amd64 (535.171.04-1~deb12u1, 535.309.01-1)
End-Date: 2025-11-21  09:00:09
"""
CHECKPOINT = {
    "run": "20251120T120000Z-1",
    "at": "2025-11-20T12:00:00Z",
    "gpuprov_version": "0.1.0",
    "spec": {},
}


def spec(*names: str) -> HostSpec:
    return HostSpec(
        name="gpu017",
        capabilities={name: BY_NAME[name].fragment() for name in names or ("nvidia_driver", "persistence")},
    )


def receipt(of: HostSpec) -> str:
    kept = {name: {"digest": digest, "applied_at": "2025-11-20T12:00:00Z"} for name, digest in digests(of).items()}
    return json.dumps({"applied_at": "2025-11-20T12:00:00Z", "gpuprov_version": "0.1.0", "capabilities": kept})


def outputs(*, narrow: bool = True) -> dict[str, Output | str]:
    layout = mig_host.state(
        mig_host.gpu(("3g.40gb", 0, (3,)), ("1g.10gb", 4, (1,)), ("1g.10gb", 5, (1,))),
        mig_host.gpu(index=1, on=False),
    )
    return {
        **good(),
        **hgx_h100(narrow=narrow).texts,
        "identity": IDENTITY,
        "mig": layout,
        "kernel_log": health_host.log(
            health_host.GSP, health_host.NEEDS_RESET, health_host.xid(31), health_host.xid(31)
        ),
        "receipt": receipt(spec()),
        "apply_marker": "",
        "package_history": HISTORY,
        "checkpoints": f"checkpoint {json.dumps(CHECKPOINT)}\n",
    }


def host(
    wanted: HostSpec | None = None,
    *,
    groups: tuple[str, ...] = ("all", "train"),
    narrow: bool = True,
    **changed: Output | str,
) -> ReadHost:
    """Return the host with these outputs changed; `narrow`: a GPU's link is."""
    wanted = wanted or spec()
    texts = {**outputs(narrow=narrow), **changed}
    facts = Facts({name: text if isinstance(text, Output) else Output(text) for name, text in texts.items()})
    raw = RawHost(name=wanted.name, groups=groups)
    return ReadHost(raw=raw, spec=wanted, results=evaluate(watched(wanted), facts), facts=facts)
