# Version of the user-mode driver (libcuda), else of the loaded module, as driver|VERSION; PCI ids of NVIDIA's functions as gpu|ID.
library=$(ldconfig -p | sed -n 's/.*=> //p' | grep -E '/libcuda\.so\.1$' | head -n 1)
[ -n "$library" ] && version=$(readlink -f "$library" | sed -n 's/.*\.so\.\([0-9]\{3\}\.[0-9.]*\)$/\1/p')
[ -n "$version" ] || version=$(sed -n 's/^NVRM version:.* \([0-9]\{3\}\.[0-9.]*\) .*/\1/p' /proc/driver/nvidia/version 2>/dev/null)
echo "driver|$version"
for device in /sys/bus/pci/devices/*; do
  read -r vendor < "$device/vendor" 2>/dev/null || continue
  [ "$vendor" = 0x10de ] && read -r id < "$device/device" && echo "gpu|10de:${id#0x}"
done
true
