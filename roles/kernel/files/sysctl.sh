# usage: sysctl.sh NAME=VALUE... -- MODULE...
# "absent NAME" for a sysctl that the kernel does not have, while none of the modules is still to be loaded that could bring it;
# "fixed NAME" for one that has another value and cannot be written, not even by root.
modules=0
for word; do
  [ "$modules" = 0 ] || [ -d "/sys/module/$word" ] || modules=2
  [ "$word" != -- ] || modules=1
done
for word; do
  [ "$word" != -- ] || break
  name=${word%%=*}
  # In a name, a dot that is part of a level is written as a slash: sysctl(8).
  file=/proc/sys/$(echo "$name" | tr './' '/.')
  if [ ! -e "$file" ]; then
    [ "$modules" = 2 ] || echo "absent $name"
  elif [ ! -w "$file" ] && [ "$(tr -s ' \t' ' ' < "$file" | sed 's/^ //; s/ $//')" != "$(echo "${word#*=}" | tr -s ' \t' ' ')" ]; then
    echo "fixed $name"
  fi
done
