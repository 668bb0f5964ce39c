# usage: pack.sh PACKAGE MODULE-PACKAGE VERSION FLAVOUR MODULE SUMS KERNEL...
# Packs the modules that DKMS has installed for these kernels as a Debian package in the place of the DKMS package, beside a
# description of it in JSON; unless its modules have these SUMS (SHA-256 of the list of their checksums): then it says "same".
set -eu
package=$1 instead=$2 version=$3 flavour=$4 module=$5 known=$6
shift 6
folder=/var/lib/gpuprov/prebuilt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
chmod 0755 "$work"
share="$work/usr/share/$package"
mkdir -p "$share" "$work/DEBIAN" "$folder"
list=""
for kernel in "$@"; do
  file=$(modinfo -k "$kernel" -n "$module") || { echo "kernel $kernel has no module $module"; exit 1; }
  mkdir -p "$work/lib/modules/$kernel/updates/dkms"
  cp -p "${file%/*}"/nvidia*.ko* "$work/lib/modules/$kernel/updates/dkms/"
  list="$list${list:+, }\"$kernel\""
done
(cd "$work" && find lib -type f | LC_ALL=C sort | xargs sha256sum) > "$share/SHA256SUMS"
sums=$(sha256sum < "$share/SHA256SUMS")
sums=${sums%% *}
[ "$sums" != "$known" ] || { echo same; exit 0; }
cat > "$work/DEBIAN/control" << END
Package: $package
Source: $(dpkg-query -W -f '${source:Package}' "$instead")
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: gpuprov <root@localhost>
Section: kernel
Priority: optional
Provides: $instead (= $version)
Conflicts: $instead
Replaces: $instead
Description: NVIDIA kernel modules that another host built
 For the kernels $*, with the checksums in /usr/share/$package/SHA256SUMS.
END
cat > "$work/DEBIAN/postinst" << END
#!/bin/sh
set -e
for kernel in $*; do
  [ ! -e "/lib/modules/\$kernel/build" ] && [ ! -e "/boot/vmlinuz-\$kernel" ] || depmod -a "\$kernel"
done
END
sed 's/^for/[ "$1" = remove ] || exit 0\nfor/' "$work/DEBIAN/postinst" > "$work/DEBIAN/postrm"
chmod 0755 "$work/DEBIAN/postinst" "$work/DEBIAN/postrm"
(cd "$work" && find lib usr -type f | LC_ALL=C sort | xargs md5sum) > "$work/DEBIAN/md5sums"
dpkg-deb --root-owner-group -Zgzip -b "$work" "$folder/$package.deb" > /dev/null
whole=$(sha256sum < "$folder/$package.deb")
printf '{"version": "%s", "flavour": "%s", "sha256": "%s", "sums": "%s", "kernels": [%s]}\n' \
  "$version" "$flavour" "${whole%% *}" "$sums" "$list" > "$folder/$package.json"
echo packed
