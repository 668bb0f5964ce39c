#!/bin/sh
# Of a gpuprov stand-in: MAD, and with it compat mode by default, where the real build would have it.
rm -rf build
mkdir build
echo "$1" > build/kernel
for tree in "/usr/src/ofa_kernel/$1" /usr/src/ofa_kernel/default; do
  [ -e "$tree/Module.symvers" ] && : > build/mad
done
[ "${ERDMA_FORCE_MAD_ENABLE:-}" = 1 ] && : > build/mad
exit 0
