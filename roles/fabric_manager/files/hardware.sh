# What the machine has, one fact a line: gpu|10de:2330   switch|10de:22a3   bridge|0000:05:00.0   kernel|RELEASE
#   module|ib_umad (loaded, built in or on disk)
for device in /sys/bus/pci/devices/*; do
  vendor=$(cat "$device/vendor" 2>/dev/null) || continue
  id=$(cut -c3- "$device/device")
  case $vendor:$(cat "$device/class") in
    0x10de:0x03*) echo "gpu|10de:$id" ;;
    0x10de:0x0680*) echo "switch|10de:$id" ;;
    0x15b3:*) [ "$id" = 1021 ] && grep -qsa SW_MNG "$device/vpd" && echo "bridge|${device##*/}" ;;
  esac
done
echo "kernel|$(uname -r)"
for module in mlx5_core mlx5_ib ib_umad; do
  if [ -d "/sys/module/$module" ] || modinfo -n "$module" > /dev/null 2>&1; then echo "module|$module"; fi
done
