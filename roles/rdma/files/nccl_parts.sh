# usage: nccl_parts.sh LIBRARY PATH... if=INTERFACE...
# What is not there of a library that the dynamic linker should find (empty: none), files and network interfaces.
[ -z "$1" ] || PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep -q "^[[:space:]]*$1[ .]" || echo "library $1"
shift
for name in "$@"; do
  case $name in
    if=*) [ -e "/sys/class/net/${name#if=}" ] || echo "interface ${name#if=}" ;;
    *) [ -f "$name" ] || echo "file $name" ;;
  esac
done
