"""GPUDirect RDMA on simulated hosts: a driver built before OFED is built again by real DKMS, one built after it is left
alone.

OFED is here what the driver's build looks for, and no more: Module.symvers with the two symbols of peer memory.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.e2e.lab import SPEC, Lab
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
PEER: dict[str, Any] = {**SPEC, "gpudirect_rdma": {"method": "nvidia_peermem"}}
OFED = """
for d in /lib/modules/*/build; do
  k=${d%/build}; t=/usr/src/ofa_kernel/x86_64/${k##*/}
  mkdir -p $t
  for s in 'CHECKSUM ib_register' '0x2 ib_unregister'; do
    printf '%s\\t%s_peer_memory_client\\t/x/ib_core\\tEXPORT_SYMBOL\\t\\n' $s
  done > $t/Module.symvers
done
"""
SERVICE = (
    "[Service]\\nType=oneshot\\nRemainAfterExit=yes\\nExecStart=/bin/true\\n[Install]\\nWantedBy=multi-user.target\\n"
)
OTHERS = f"""
for n in openibd nv_peer_mem; do printf '{SERVICE}' > /etc/systemd/system/$n.service; done
systemctl daemon-reload; systemctl --quiet enable --now openibd nv_peer_mem
"""
GDRCOPY = r"""set -e
r=/srv/gdrcopy m=/srv/gdrcopy/gdrdrv l=/srv/gdrcopy/lib
u=$m/usr/src/gdrdrv-2.5.1
mkdir -p $m/DEBIAN $u $m/etc/init.d $l/DEBIAN
for p in "gdrdrv-dkms $m" "libgdrapi $l"; do
  cat > ${p#* }/DEBIAN/control <<E
Package: ${p% *}
Version: 2.5.1-1
Architecture: all
Maintainer: gpuprov <gpuprov@example.com>
Description: gpuprov stand-in for gdrcopy
E
done
cat > $u/dkms.conf <<'E'
PACKAGE_NAME=gdrdrv
PACKAGE_VERSION=2.5.1
BUILT_MODULE_NAME[0]=gdrdrv
DEST_MODULE_LOCATION[0]=/updates/dkms
AUTOINSTALL=yes
MAKE[0]="make -C /lib/modules/${kernelver}/build M=${dkms_tree}/gdrdrv/2.5.1/build modules"
E
echo 'obj-m := gdrdrv.o' > $u/Makefile
cat > $u/gdrdrv.c <<'E'
#include <linux/module.h>
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION("2.5.1");
MODULE_DESCRIPTION("gpuprov stand-in for gdrdrv");
E
cat > $m/etc/init.d/gdrdrv <<'E'
#!/bin/sh
### BEGIN INIT INFO
# Provides: gdrdrv
# Required-Start:
# Required-Stop:
# Default-Start: 2 3 4 5
# Default-Stop: 0 1 6
### END INIT INFO
exit 0
E
cat > $m/DEBIAN/postinst <<'E'
#!/bin/sh
set -e
dkms add gdrdrv/2.5.1
for b in /lib/modules/*/build; do k=${b%/build}; dkms install -k ${k##*/} gdrdrv/2.5.1; done
systemctl daemon-reload
E
chmod 755 $m/DEBIAN/postinst $m/etc/init.d/gdrdrv
cd $r
for d in $m $l; do dpkg-deb -b $d $r >/dev/null; done
for f in *.deb; do
  dpkg-deb -f $f
  printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' $f $(stat -c %s $f) $(sha256sum $f | cut -d' ' -f1)
done > Packages
echo "deb [trusted=yes] file:$r ./" > /etc/apt/sources.list.d/gdrcopy.list
apt-get -qq update
"""
"""Stand-ins of gdrcopy's packages in a repository of the site's: a module by DKMS, an init script, a library."""
DEPENDS = "modinfo -k $(ls /lib/modules | tail -n 1) -F depends nvidia-current-peermem"


def ofed(machine: Machine, checksum: str = "0x1f2e3d4c") -> None:
    machine.sh(OFED.replace("CHECKSUM", checksum))


def test_a_driver_that_was_built_before_ofed(lab: Lab, newest: str) -> None:
    machine = lab.simulated("gpudirect", newest)
    folder = lab.inventory(PEER, machine)

    # Without OFED nothing is begun.
    before = machine.state()
    done = lab.run("apply", folder, "--yes")
    assert done.code != 0, done
    assert "no ib_core with peer memory, which is OFED's" in done.text
    assert "rdma: {stack: doca-ofed}" in done.text
    assert machine.state() == before

    # OFED after the driver: the module is there, and would never load.
    ofed(machine)
    assert "ib_core" not in machine.sh(DEPENDS)
    found = lab.run("verify", folder, "--json").failed("gpudirect_rdma")
    assert "it was built before OFED, without peer memory" in found["gpudirect_rdma.built"]["found"]
    assert "by DKMS" in found["gpudirect_rdma.built"]["fix"]
    done = lab.run("plan", folder)
    assert "built again" in done.text, done

    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert "ib_core" in machine.sh(DEPENDS)
    state = machine.state()
    done = lab.run("apply", folder, "--yes", "--full")
    assert done.code == 0, done
    assert machine.state() == state

    # Another OFED, its service, the forerunner's service, and a parameter that keeps the module out.
    ofed(machine, "0x0badcafe")
    machine.sh(OTHERS)
    machine.write("/etc/modprobe.d/by-hand.conf", "options nvidia-current-peermem peerdirect_support=2\n")
    found = lab.run("verify", folder, "--json").failed("gpudirect_rdma")
    assert "it was built against another OFED" in found["gpudirect_rdma.built"]["found"]
    assert "nv_peer_mem.service is enabled" in found["gpudirect_rdma.enabled"]["found"]
    assert "the module answers Invalid argument" in found["gpudirect_rdma.parameters"]["found"]
    assert "10-nvidia-peermem.conf: absent" in found["gpudirect_rdma.files"]["found"]
    machine.sh("rm /etc/modprobe.d/by-hand.conf")
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert not lab.run("verify", folder, "--json").failed("gpudirect_rdma")
    assert "inactive" in machine.sh("systemctl is-active nv_peer_mem || true")


def test_a_driver_that_is_built_after_ofed(lab: Lab) -> None:
    machine = lab.simulated("gpudirect-right", archive=True)
    ofed(machine)
    folder = lab.inventory(PEER, machine)
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert re.search(r"built against peer memory\] \**\nskipping: ", lab.log()), "nothing is built a second time"
    assert "ib_core" in machine.sh(DEPENDS)

    # dma-buf needs open modules, which this driver is not; nothing is changed for it.
    state = machine.state()
    done = lab.run("apply", lab.inventory({**PEER, "gpudirect_rdma": {"method": "dmabuf"}}, machine), "--yes")
    assert done.code != 0, done
    assert "dma-buf needs open kernel modules" in done.text
    assert machine.state() == state


def test_open_modules_need_no_peer_module_and_gdrcopy_comes_along(lab: Lab) -> None:
    """What builds with the newest headers does not matter here: stand-in modules of both flavours do."""
    machine = lab.simulated("gpudirect-open", archive=True)
    spec = {**SPEC, "nvidia_driver": {"version": "535", "kernel_modules": "open"}}
    folder = lab.inventory({**spec, "gpudirect_rdma": {"gdrcopy": {"install": True}}}, machine)
    done = lab.run("plan", folder)
    assert "no package source of the host has gdrdrv-dkms libgdrapi" in done.text, done

    machine.sh(GDRCOPY)
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    results = {one["check"]: one for one in lab.run("verify", folder, "--json", "-v").json}
    assert "no module is needed for it" in results["gpudirect_rdma.dmabuf"]["found"]
    assert results["gpudirect_rdma.built"]["found"] == "the method is dmabuf"
    assert "gdrdrv.service enabled" in results["gpudirect_rdma.enabled"]["found"]
    machine.sh("test ! -e /etc/systemd/system/gpuprov-gpudirect.service")
    state = machine.state()
    done = lab.run("apply", folder, "--yes", "--full")
    assert done.code == 0, done
    assert machine.state() == state

    machine.sh(
        "rm /lib/modules/*/updates/dkms/gdrdrv.ko; depmod -a $(ls /lib/modules | tail -n 1); systemctl --quiet "
        "disable gdrdrv"
    )
    found = lab.run("verify", folder, "--json").failed("gpudirect_rdma")
    assert "none for" in found["gpudirect_rdma.gdrcopy_boot"]["found"]
    assert "gdrdrv.service is disabled" in found["gpudirect_rdma.enabled"]["found"]
