# Runs on the simulated host: from its next boot on, each boot is one line in /var/lib/gpuprov-sim/boots.
cat > /etc/systemd/system/gpuprov-sim-boots.service << 'UNIT'
[Unit]
Description=Counts the boots of this simulated host (gpuprov's molecule scenarios)

[Service]
Type=oneshot
StateDirectory=gpuprov-sim
ExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/boot_id >> /var/lib/gpuprov-sim/boots'

[Install]
WantedBy=multi-user.target
UNIT
mkdir -p /var/lib/gpuprov-sim
: > /var/lib/gpuprov-sim/boots
systemctl daemon-reload
systemctl --quiet enable gpuprov-sim-boots.service
