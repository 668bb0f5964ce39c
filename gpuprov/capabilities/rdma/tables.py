"""What the role `rdma` decides by."""

from __future__ import annotations

from collections.abc import Mapping

from gpuprov.capabilities.base import scripts
from gpuprov.catalog import efa, erdma, rdma, rdma_ofed, roce
from gpuprov.probe.erdma import ERDMA
from gpuprov.probe.ofed import OFED
from gpuprov.probe.rdma import DEVICES
from gpuprov.probe.rdma_host import HOST
from gpuprov.probe.roce import READER


def tables() -> Mapping[str, object]:
    return {
        "rdma": {**rdma.tables(), "scripts": scripts(DEVICES, HOST)},
        "rdma_ofed": {**rdma_ofed.tables(), "scripts": scripts(OFED)},
        "roce": {**roce.tables(), "scripts": {"reader": READER}},
        "efa": efa.tables(),
        "erdma": {**erdma.tables(), "scripts": scripts(ERDMA)},
    }
