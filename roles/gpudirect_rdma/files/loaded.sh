# usage: loaded.sh MODULE OTHER [PARAMETER=VALUE...]
# What is not as it should be, one a line: "waits" (for a reboot, or for a GPU), "other OTHER", "absent MODULE", "parameter NAME VALUE".
module=$1 other=$2
shift 2
if [ -n "$(ls -A /run/gpuprov/reboot-required.d 2> /dev/null)" ]; then
  echo "waits for a reboot"
  exit
fi
grep -qis '^0x03' $(grep -lix 0x10de /sys/bus/pci/devices/*/vendor 2> /dev/null | sed 's/vendor$/class/') /dev/null || { echo "waits for a GPU"; exit; }
[ -n "$other" ] && [ -d "/sys/module/$other" ] && echo "other $other"
[ -d "/sys/module/$module" ] || { echo "absent $module"; exit; }
for pair in "$@"; do
  file=/sys/module/$module/parameters/${pair%%=*}
  [ ! -r "$file" ] || [ "$(cat "$file")" = "${pair#*=}" ] || echo "parameter ${pair%%=*} $(cat "$file")"
done
