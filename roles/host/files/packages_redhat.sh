# "broken", if rpm's database cannot be trusted; "marker", if an apply was cut off.
rpm --verifydb > /dev/null 2>&1 || echo broken
[ -e /var/lib/gpuprov/applying.json ] && echo marker
true
