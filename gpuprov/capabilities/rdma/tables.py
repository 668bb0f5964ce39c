"""What the role `rdma` decides by."""

from __future__ import annotations

from collections.abc import Mapping

from gpuprov.capabilities.base import scripts
from gpuprov.catalog import efa, erdma, rdma_ofed
from gpuprov.probe.erdma import ERDMA
from gpuprov.probe.ofed import OFED


def tables() -> Mapping[str, object]:
    return {
        "rdma_ofed": {**rdma_ofed.tables(), "scripts": scripts(OFED)},
        "efa": efa.tables(),
        "erdma": {**erdma.tables(), "scripts": scripts(ERDMA)},
    }
