#!/bin/bash
# A gpuprov stand-in for the installer of Alibaba's eRDMA software: it builds and installs the package that lies beside it.
set -e
cd "$(dirname "$0")"
[ "${1-}" = --batch ] || { echo 'usage: install.sh --batch (gpuprov stand-in)' >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo 'Error: root is needed' >&2; exit 1; }
for program in dkms cmake make; do
  command -v "$program" >/dev/null || { echo "Error: $program is not installed" >&2; exit 1; }
done
chmod 755 package/DEBIAN/* package/bin/eadm package/usr/src/erdma-1.0.2/configure-dkms.sh
dpkg-deb --root-owner-group --build package erdma.deb >/dev/null
dpkg --install --force-confmiss --force-confold erdma.deb
dkms status erdma
