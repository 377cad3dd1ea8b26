#!/bin/sh
# Runs a program as the user's code: with its packages, as its user, without any capability. The
# worker starts its children with it and keeps their process ids, since every step replaces the one
# before.
set -eu
# Threads count too, of which libraries start one a core in each process.
processes=$((4096 + 1024 * $(nproc)))
here=$(cd "$(dirname "$0")/.." && pwd)
# Memory runs out in the user's code first, and a killed child is a failed job, not a dead worker.
echo 500 >/proc/self/oom_score_adj
export HOME=/var/lib/spindown/run USER=spindown-run LOGNAME=spindown-run
export PATH="$here/run/bin:$PATH"
# All that this user runs, in all slots together: a fork bomb ends its job, and not the machine.
prlimit --pid $$ --nproc="$processes" --core=0
# What its code leaves in places that everybody may write is known by the slot's own group.
group=${SPINDOWN_GROUP:-spindown-run}
unset SPINDOWN_GROUP
exec setpriv --reuid=spindown-run --regid="$group" --groups=spindown-run --no-new-privs \
    --inh-caps=-all --ambient-caps=-all --bounding-set=-all -- "$@"
