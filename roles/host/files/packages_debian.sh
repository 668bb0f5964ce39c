# usage: packages_debian.sh LOCK_TIMEOUT LISTS_MAX_MINUTES
# "broken", if apt cannot work; "marker", if an apply was cut off; "lists", if there are package lists; "fresh", if they are
# young; then what dpkg complains of. apt-get check waits for another apt to finish, so that nobody's work looks half done.
apt-get -qq -o "DPkg::Lock::Timeout=$1" check > /dev/null 2>&1 || echo broken
[ -e /var/lib/gpuprov/applying.json ] && echo marker
[ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -print -quit)" ] && echo lists
[ -n "$(find /var/lib/apt/lists -maxdepth 0 -mmin "-$2")" ] && echo fresh
dpkg --audit
true
