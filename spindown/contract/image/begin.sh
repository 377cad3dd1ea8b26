#!/bin/sh
# Makes this instance a worker. Whatever fails, or takes too long, ends the instance, so that it
# does not bill for nothing; what went wrong stands in the console's output.
set -eu
# How long the system has been up, for the phases of the boot.
cut -d' ' -f1 /proc/uptime >/run/spindown-begun
# cloud-init sets none, and some programs insist on one.
export HOME=/root

power_off() {
    echo "spindown: this instance could not become a worker and ends; the cause is above" >&2
    systemctl poweroff || systemctl poweroff --force --force
}
trap '[ $? -eq 0 ] || power_off' EXIT
trap 'exit 1' HUP INT TERM
systemd-run --quiet --unit=spindown-start --on-active=@within@ systemctl poweroff
