
sysctl --quiet --load /etc/sysctl.d/90-spindown.conf || echo "spindown: a sysctl is refused" >&2
# The dead-man check first: it is there for a worker that does not start.
systemctl enable --now spindown-deadman.timer
systemctl enable --now spindown-worker.service
systemctl stop spindown-start.timer
