#!/bin/sh
# Lets the worker start containers by Docker's daemon, if its instance bears the tag of a workload
# that runs in one (run.image). Who may ask that daemon is as good as root, so no other worker may.
set -eu
getent group docker >/dev/null || exit 0
metadata=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
ask() { curl -fsS --max-time 5 --retry 2 "$@" 2>/dev/null || echo; }

token=$(ask -X PUT "$metadata/latest/api/token" -H 'X-aws-ec2-metadata-token-ttl-seconds: 60')
containers=$(ask "$metadata/latest/meta-data/tags/instance/spindown:containers" \
    -H "X-aws-ec2-metadata-token: $token")
if [ "$containers" = allow ]; then
    usermod -aG docker spindown
elif id -nG spindown | grep -qw docker; then
    gpasswd -d spindown docker
fi
