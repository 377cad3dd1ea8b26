#!/bin/sh
# Checks that what install.sh left can work, so that no image is published and no worker started
# that cannot.
set -eu
home=$(cd "$(dirname "$0")/.." && pwd)

check() {
    what=$1 && shift
    if said=$("$@" 2>&1); then
        echo "spindown smoke: $what: ok${said:+ ($said)}"
    else
        echo "spindown smoke: $what: failed: $said" >&2
        exit 1
    fi
}

check "worker" "$home/worker/bin/python" -I -m spindown.worker --version
check "imports" "$home/worker/bin/python" -c 'import boto3, spindown.aws'
check "user's code" "$home/bin/run-python" -c 'import spindown.contract.run_spec'
check "shared memory" ipcrm --version
check "metadata rule" nft --check --file "$home/system/metadata.nft"
# 0x10de is NVIDIA's vendor number; an instance without a GPU may bake an image.
if grep -qs 0x10de /sys/bus/pci/devices/*/vendor; then
    check "GPU" nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
fi
