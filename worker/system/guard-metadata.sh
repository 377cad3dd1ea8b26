#!/bin/sh
# Keeps the user's code away from instance metadata, unless the instance bears the tag by which the
# workload has asked for it (run.metadata_access). Whatever gives no answer keeps the guard up.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
metadata=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
ask() { curl -fsS --max-time 5 --retry 2 "$@" 2>/dev/null || echo; }

token=$(ask -X PUT "$metadata/latest/api/token" -H 'X-aws-ec2-metadata-token-ttl-seconds: 60')
access=$(ask "$metadata/latest/meta-data/tags/instance/spindown:metadata-access" \
    -H "X-aws-ec2-metadata-token: $token")
if [ "$access" = allow ]; then
    echo "spindown: the user's code may ask instance metadata, as its workload says"
    nft delete table inet spindown 2>/dev/null || :
else
    nft --file "$here/metadata.nft"
fi
