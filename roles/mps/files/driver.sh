# The version of the user-mode driver (libcuda); nothing where there is none.
library=$(ldconfig -p | sed -n 's/.*=> //p' | grep -E '/libcuda\.so\.1$' | head -n 1)
[ -z "$library" ] || readlink -f "$library" | sed -n 's/.*\.so\.\([0-9]\{3\}\.[0-9.]*\)$/\1/p'
