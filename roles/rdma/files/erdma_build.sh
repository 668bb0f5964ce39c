# usage: erdma_build.sh KERNEL...
# Has DKMS build and install the driver for each kernel whose module is missing, is not Alibaba's, or, with ERDMA_FORCE_MAD_ENABLE=1,
# was built without MAD; "installed for KERNEL". A kernel for which there is an OFED tree is built against it, as always.
version=$(dkms status 2>/dev/null | sed -n 's|^erdma[,/] *\([^,: ]*\).*|\1|p' | sort -V | tail -n 1)
[ -n "$version" ] || { echo 'dkms status does not know erdma: the installer has registered nothing'; exit 1; }
for kernel in "$@"; do
  if modinfo -k "$kernel" -F parm erdma 2>/dev/null | grep -q '^compat_mode:'; then
    [ "${ERDMA_FORCE_MAD_ENABLE:-}" = 1 ] || continue
    modinfo -k "$kernel" -F description erdma 2>/dev/null | grep -q 'Soft RDMA transport' && continue
  fi
  dkms remove -m erdma -v "$version" -k "$kernel" >/dev/null 2>&1
  [ -e "/var/lib/dkms/erdma/$version/source" ] || dkms add -m erdma -v "$version" >/dev/null 2>&1
  if ! answer=$(dkms install --force -m erdma -v "$version" -k "$kernel" 2>&1); then
    echo "kernel $kernel: $answer"
    tail -n 12 "/var/lib/dkms/erdma/$version/build/make.log" 2>/dev/null
    exit 1
  fi
  depmod "$kernel"
  echo "installed for $kernel"
done
