#!/bin/sh
# Runs a program as the user who installs the packages of the user's code, without any capability.
# The metadata rule knows that user, and no exception for it.
#
#   run-build.sh HOME PROGRAM ARGUMENT...
set -eu
export HOME="$1" TMPDIR="$1" UV_CACHE_DIR="$1/cache" UV_LINK_MODE=hardlink
shift
# Whoever makes an image by hand may have credentials of his own.
for name in $(env | sed -n 's/^\(AWS_[A-Za-z0-9_]*\)=.*/\1/p'); do unset "$name"; done
exec setpriv --reuid=spindown-build --regid=spindown-build --clear-groups --no-new-privs \
    --inh-caps=-all --ambient-caps=-all --bounding-set=-all -- "$@"
