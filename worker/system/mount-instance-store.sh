#!/bin/sh
# Puts what a worker and the user's code write on the instance store, the NVMe disks that some types
# of instances bring, if these have more room than the root volume and write as fast.
#
#   mount-instance-store.sh [ROOT]    ROOT: below which all paths are
#
# Whatever fails leaves the root volume in use, and a line says why. Run again, it changes nothing;
# after a reboot, which the data survive, it mounts the same again. Its data are lost with the
# instance, as those of the root volume are.
#
# A disk that bears any signature is not formatted, and mkfs refuses one that is in use. EC2 hands
# disks out empty, and encrypts them by keys that it destroys when the instance ends (EC2 User Guide,
# "SSD instance store volumes").
set -u
root=${1:-}
# Inputs, outputs, checkpoints, TMPDIR; the user's HOME; the packages of the user's code.
folders='/var/lib/spindown/work /var/lib/spindown/run /opt/spindown/run'
options=noatime,nodev,nosuid

stay() {
    echo "spindown: on the root volume: $folders: $1"
    exit 0
}

# find_disk: tell the largest disk that is empty or was formatted here. Several are not made one:
# where the Deep Learning AMIs do not do it, a tool would have to be installed.
find_disk() {
    most=0 largest=''
    for disk in "$root"/sys/block/nvme*n*; do
        model='' size=0
        [ ! -r "$disk/device/model" ] || read -r model <"$disk/device/model"
        [ "$model" = 'Amazon EC2 NVMe Instance Storage' ] || continue
        device=$root/dev/${disk##*/}
        signed=$(wipefs --noheadings --output TYPE,LABEL "$device") || continue
        case $signed in
            '' | *' spindown') ;;
            *) continue ;;
        esac
        read -r size <"$disk/size"
        [ "$size" -le "$most" ] || most=$size largest=$device
    done
    echo "$largest"
}

# Without TRIM, as EC2's disks are trimmed already (EC2 User Guide, "Instance store volume TRIM
# support"); no blocks are kept for root, who needs none here.
format() {
    if command -v mkfs.ext4 >/dev/null; then
        mkfs.ext4 -q -m 0 -E nodiscard -L spindown "$1"
    else
        mkfs.xfs -q -K -L spindown "$1"
    fi
}

# KiB that are free.
room() { df -k --output=avail "$1" | tail -n 1 | tr -d ' '; }

# AWS's Deep Learning AMIs make one ext4 volume of all the disks by a unit of their own, which begins
# when the network is up, as user data does: starting it waits for its end.
if systemctl cat dlami-nvme.service >/dev/null 2>&1; then
    timeout 40 systemctl start dlami-nvme.service || :
    store=$root/opt/dlami/nvme
    mountpoint -q "$store" || stay "nothing is mounted at $store"
else
    store=$root/run/spindown-store
    if ! mountpoint -q "$store"; then
        device=$(find_disk)
        [ -n "$device" ] || stay 'there is no instance store that is empty'
        if [ -z "$(wipefs --noheadings "$device")" ]; then
            format "$device" || stay "$device cannot be formatted"
        fi
        mkdir -p "$store"
        mount -o "$options" "$device" "$store" || stay "$device cannot be mounted"
    fi
fi

own=$store/spindown
if [ ! -d "$own" ]; then
    [ "$(room "$store")" -ge "$(room "$root/var/lib")" ] 2>/dev/null ||
        stay 'the instance store has less room'
    # So much a gp3 volume writes in a second. The disks of small types write less: 33 MB/s on
    # c6gd.medium, 70 on m5d.large (scylladb/scylla-machine-image, common/aws_io_params.yaml).
    timeout 1 dd if=/dev/zero of="$store/spindown-test" bs=1M count=125 conv=fdatasync 2>/dev/null
    is_slow=$?
    rm -f "$store/spindown-test"
    [ $is_slow = 0 ] || stay 'the instance store writes more slowly'
    mkdir -m 700 "$own" || stay "$own cannot be made"
fi

moved=''
for folder in $folders; do
    here=$root$folder there=$own$folder
    # What an image has already stays where it is.
    if mountpoint -q "$here" || [ ! -d "$here" ] || [ -n "$(ls -A "$here")" ]; then continue; fi
    mkdir -p "$there" && chown --reference="$here" "$there" && chmod --reference="$here" "$there" &&
        mount --bind -o "$options" "$there" "$here" && moved="$moved $folder"
done
[ -z "$moved" ] || echo "spindown: on the instance store:$moved"
