# usage: built.sh FOLDER...
# Those that a build has ended in.
for d in "$@"; do [ -e "$d/built" ] && echo "$d"; done
true
