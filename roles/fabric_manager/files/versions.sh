# usage: versions.sh PROGRAM
# The version of Fabric Manager, and then that of the loaded driver; nothing without Fabric Manager.
[ -e "$1" ] || exit 0
timeout 10 "$1" --version < /dev/null 2>&1 | grep -oE '[0-9]{3}(\.[0-9]+)+' | head -n 1
sed -n 's/^NVRM version:.* \([0-9]\{3\}\.[0-9.]*\) .*/\1/p' /proc/driver/nvidia/version 2> /dev/null
true
