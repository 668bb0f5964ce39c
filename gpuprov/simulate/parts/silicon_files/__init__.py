"""Files that the part `silicon` puts on simulated hosts: kernel modules, programs, units."""
