#!/bin/sh
# Powers the instance off when its worker shows no sign of life, or when it is up for too long.
#
#   deadman.sh ALIVE SEEN UPTIME
#
#   ALIVE   file that the worker writes at every heartbeat: the longest uptime, in seconds, that its
#           policy allows; it need not exist yet
#   SEEN    file in which this script remembers what it saw last
#   UPTIME  file whose first number is the time since boot in seconds, /proc/uptime
#
# Both limits, in seconds, can be set in the environment: SILENCE, and LIFETIME for as long as the
# worker has not told one. Time is counted since boot, so setting the clock ends nothing: of ALIVE
# only a change is taken notice of. The first run counts as a sign of life.
set -eu
silence=${SILENCE:-900}
lifetime=${LIFETIME:-87300}
alive=$1 seen=$2

read -r uptime _ <"$3"
uptime=${uptime%%.*}

power_off() {
    echo "spindown deadman: $1; powering off"
    systemctl poweroff || systemctl poweroff --force --force
    exit
}

sign=$(stat -c %y "$alive" 2>/dev/null || echo none)
since='' last=''
if [ -r "$seen" ]; then read -r since last <"$seen" || :; fi
if [ -z "$since" ] || [ "$sign" != "$last" ]; then
    since=$uptime
    echo "$since $sign" >"$seen" || echo "spindown deadman: cannot write $seen" >&2
fi

told=''
if [ -r "$alive" ]; then read -r told <"$alive" || :; fi
case $told in
    '' | *[!0-9]*) ;;
    *) lifetime=$told ;;
esac

if [ $((uptime - since)) -ge "$silence" ]; then
    power_off "no sign of life from the worker for $((uptime - since)) s"
fi
if [ "$uptime" -ge "$lifetime" ]; then
    power_off "up for $uptime s, longer than the $lifetime s allowed"
fi
