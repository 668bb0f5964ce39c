"""A host with a kernel of the description's choice: real packages of the archive."""

from __future__ import annotations

import os
import re

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import hosts
from gpuprov.simulate.description import Description

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_the_named_kernel_is_the_only_one_and_a_wrong_one_names_those_that_are() -> None:
    name = f"e2e-kernel-{os.getpid()}"
    with pytest.raises(GpuprovError, match=r"kernel is 1\.2\.3-4-amd64; this distribution has: ") as refused:
        hosts.up(name, Description(kernel="1.2.3-4-amd64"))
    assert name not in {row.name for row in hosts.listing()}
    oldest = re.findall(r"[0-9.]+-[0-9]+-amd64", str(refused.value).partition("has: ")[2])[0]
    try:
        hosts.up(name, Description(kernel=oldest))
        assert hosts.run(name, "ls /lib/modules").split() == [oldest]
        assert f"initrd.img-{oldest}" in hosts.run(name, "ls /boot")
    finally:
        hosts.down(name)
