"""Files of a simulated machine's disk beyond Debian's packages: network, boot loader defaults, and identity."""

from __future__ import annotations

from collections.abc import Mapping

from gpuprov.simulate.parts import silicon
from gpuprov.simulate.parts.base import PROGRAMS, File, text

DISK = "/dev/vda"
ROOT_LABEL, BOOT_LABEL = "gpuprov-root", "gpuprov-boot"
MODULE_SOURCES = "/usr/src/gpuprov-sim-pci"
# Name of the QEMU fw_cfg item with the machine's identity; the disk is the same for all machines.
IDENTITY = "opt/gpuprov.identity"
INTERFACE, FABRIC_INTERFACE = "ens3", "ens4"
# Address of the machine under the simulation as seen by every simulated machine:
# https://www.qemu.org/docs/master/system/devices/net.html
GATEWAY, OWN_ADDRESS = "10.0.2.2", "10.0.2.15"
FABRIC_PREFIX = "10.77.0."
CONSOLE = "ttyS0"
# Console message of the boot that finishes the disk.
DONE = "gpuprov-sim: the disk is finished"

_BOOT = """\
GRUB_TIMEOUT=0
GRUB_RECORDFAIL_TIMEOUT=0
GRUB_DISABLE_OS_PROBER=true
GRUB_TERMINAL=serial
GRUB_CMDLINE_LINUX_DEFAULT=""
GRUB_CMDLINE_LINUX="console=ttyS0 mitigations=off rcupdate.rcu_expedited=1"
"""
# A machine learns who it is from its fw_cfg items: name, keys that log in, address in the fabric, folders of the
# machine under it. Written anew at each boot, so that a copy of a disk becomes another host.
_IDENTITY = """\
#!/bin/sh
# Part of gpuprov's simulated hosts: takes this machine's name, keys and addresses from QEMU.
set -eu
modprobe qemu_fw_cfg
while read -r what value rest; do
  case "$what" in
    name)
      echo "$value" >/etc/hostname
      hostname "$value"
      printf '127.0.0.1\\tlocalhost\\n127.0.1.1\\t%s\\n' "$value" >/etc/hosts ;;
    fabric)
      printf '[Match]\\nName=@FABRIC@\\n\\n[Network]\\nAddress=%s/24\\nLinkLocalAddressing=no\\n' "$value" \\
        >/etc/systemd/network/20-fabric.network ;;
    key)
      for account in root:/root gpuadmin:/home/gpuadmin; do
        user=${account%%:*} home=${account#*:}
        install -d -m 700 -o "$user" -g "$user" "$home/.ssh"
        grep -qxF "$value $rest" "$home/.ssh/authorized_keys" 2>/dev/null ||
          echo "$value $rest" >>"$home/.ssh/authorized_keys"
        chown "$user:" "$home/.ssh/authorized_keys"
        chmod 600 "$home/.ssh/authorized_keys"
      done ;;
    volume)
      mkdir -p "$rest"
      mountpoint -q "$rest" || mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose "$value" "$rest" ;;
  esac
done </sys/firmware/qemu_fw_cfg/by_name/@ITEM@/raw
"""
_IDENTITY_UNIT = """\
[Unit]
Description=Who this simulated machine is (gpuprov)
DefaultDependencies=no
After=local-fs.target
Before=systemd-networkd.service network-pre.target sysinit.target ssh.service
Wants=network-pre.target
ConditionVirtualization=vm

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=@PROGRAMS@/identity

[Install]
WantedBy=sysinit.target
"""


def files() -> Mapping[str, File]:
    """Return files by path on the disk; the same for every distribution."""
    identity = _IDENTITY.replace("@FABRIC@", FABRIC_INTERFACE).replace("@ITEM@", IDENTITY)
    return {
        "/etc/fstab": text(
            f"LABEL={ROOT_LABEL} / ext4 noatime,errors=remount-ro 0 1\nLABEL={BOOT_LABEL} /boot ext4 noatime 0 2\n"
        ),
        "/etc/machine-id": text(""),
        "/etc/resolv.conf": text("nameserver 10.0.2.3\n"),
        "/etc/systemd/network/10-outside.network": text(
            f"[Match]\nName={INTERFACE}\n\n[Network]\nAddress={OWN_ADDRESS}/24\nGateway={GATEWAY}\nDNS=10.0.2.3\n"
            "LinkLocalAddressing=no\nIPv6AcceptRA=no\n"
        ),
        "/etc/default/grub.d/10-gpuprov-sim.cfg": text(_BOOT),
        # Under emulation a rebuild with MODULES=most takes minutes; what this machine needs to find its disk is known.
        "/etc/initramfs-tools/conf.d/gpuprov-sim": text("MODULES=list\nRESUME=none\nCOMPRESS=zstd\nCOMPRESSLEVEL=1\n"),
        "/etc/initramfs-tools/modules": text("virtio_pci\nvirtio_blk\ncrc32c_generic\ncrc32c_intel\next4\n"),
        "/etc/ssh/sshd_config.d/gpuprov-sim.conf": text("UseDNS no\nGSSAPIAuthentication no\n"),
        f"{PROGRAMS}/identity": text(identity, 0o755),
        "/etc/systemd/system/gpuprov-sim-identity.service": text(_IDENTITY_UNIT.replace("@PROGRAMS@", PROGRAMS)),
        f"{PROGRAMS}/finish": text(FINISH, 0o755),
        **{f"{MODULE_SOURCES}/{name}": File(content) for name, content in silicon.module_sources().items()},
        **silicon.boot_files(),
    }


# Housekeeping that no test needs and that takes seconds of an emulated CPU after each start.
_NEEDLESS = (
    *(
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
        "e2scrub_all.timer",
        "e2scrub_reap.service",
    ),
    *("fstrim.timer", "man-db.timer", "getty@tty1.service", f"serial-getty@{CONSOLE}.service", "grub-common.service"),
    *("systemd-pstore.service", "systemd-firstboot.service", "systemd-networkd-wait-online.service"),
)
# Run in the root file system before it becomes a disk.
PREPARE = f"""
rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -C gpuprov-sim -f /etc/ssh/ssh_host_ed25519_key
# OpenSSH 9.8 and later shuts out whoever connects often: all come from one address here. Earlier ones do not know the word.
mkdir -p /run/sshd
! /usr/sbin/sshd -t -o PerSourcePenalties=no || echo 'PerSourcePenalties no' >> /etc/ssh/sshd_config.d/gpuprov-sim.conf
systemctl enable systemd-networkd.service gpuprov-sim-identity.service
systemctl mask {" ".join(_NEEDLESS)}
systemctl set-default multi-user.target
printf 'grub-pc grub-pc/install_devices multiselect {DISK}\\n' | debconf-set-selections
for kernel in $(ls /lib/modules); do
  make -s -C {MODULE_SOURCES} KERNEL_UNAME="$kernel"
  install -D -m 644 -t "/lib/modules/$kernel/extra" {MODULE_SOURCES}/*.ko
  depmod "$kernel"
done
rm -r {MODULE_SOURCES}
update-initramfs -u -k all
"""
# Run once inside, on the disk's own kernel.
FINISH = f"""#!/bin/sh
# The first boot of a simulated machine's disk, as /sbin/init: what a Debian installer does on the machine itself.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
(
  set -ex
  mount -o remount,rw /
  mount /boot
  mountpoint -q /proc || mount -t proc proc /proc
  mountpoint -q /sys || mount -t sysfs sysfs /sys
  grub-install {DISK}
  update-grub
  rm -f {PROGRAMS}/finish
  umount /boot
  echo "{DONE}"
) >/dev/{CONSOLE} 2>&1
sync
mount -o remount,ro /
poweroff -f
"""
