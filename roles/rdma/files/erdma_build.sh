# usage: erdma_build.sh KERNEL...
# Has DKMS build and install the driver for each kernel whose module is missing, is not Alibaba's, or, with ERDMA_FORCE_MAD_ENABLE=1,
# was built without MAD; "installed for KERNEL". A kernel for which there is an OFED tree is built against it, as always. DKMS builds no
# version twice: what it had built is removed before, and put back where the new build fails.
version=$(dkms status 2>/dev/null | sed -n 's|^erdma[,/] *\([^,: ]*\).*|\1|p' | sort -V | tail -n 1)
[ -n "$version" ] || { echo 'dkms status does not know erdma: the installer has registered nothing'; exit 1; }
kept=$(mktemp -d) || exit 1
trap 'rm -rf "$kept"' EXIT
for kernel in "$@"; do
  if modinfo -k "$kernel" -F parm erdma 2>/dev/null | grep -q '^compat_mode:'; then
    [ "${ERDMA_FORCE_MAD_ENABLE:-}" = 1 ] || continue
    modinfo -k "$kernel" -F description erdma 2>/dev/null | grep -q 'Soft RDMA transport' && continue
  fi
  built="/var/lib/dkms/erdma/$version/$kernel"
  rm -rf "$kept/built"
  [ ! -d "$built" ] || cp -a "$built" "$kept/built" || exit 1
  dkms remove -m erdma -v "$version" -k "$kernel" >/dev/null 2>&1
  [ -e "/var/lib/dkms/erdma/$version/source" ] || dkms add -m erdma -v "$version" >/dev/null 2>&1
  if ! answer=$(dkms install --force -m erdma -v "$version" -k "$kernel" 2>&1); then
    echo "kernel $kernel: $answer"
    tail -n 12 "/var/lib/dkms/erdma/$version/build/make.log" 2>/dev/null
    if [ -d "$kept/built" ]; then
      rm -rf "$built"
      cp -a "$kept/built" "$built" && dkms install --force -m erdma -v "$version" -k "$kernel" >/dev/null 2>&1 &&
        echo 'the driver that was there is back'
    fi
    exit 1
  fi
  depmod "$kernel"
  echo "installed for $kernel"
done
