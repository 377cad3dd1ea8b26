#!/bin/sh
# Real disks, file systems and mounts; test_instance_store runs this in a guest, whose first disk is
# none of the instance store, whose second bears a file system, and whose third is empty.
set -eux
script=$PWD/worker/system/mount-instance-store.sh
root=/mnt/root work=$root/var/lib/spindown/work
mkdir -p "$work" $root/var/lib/spindown/run $root/opt/spindown/run $root/run $root/bin
ln -s /sys /dev $root
chown 12:34 "$work"
chmod 2750 "$work"
echo 'Amazon EC2 NVMe Instance Storage' >$root/model
mount --bind $root/model /sys/class/nvme/nvme1/model
mount --bind $root/model /sys/class/nvme/nvme2/model
mkfs.ext4 -q -L data /dev/nvme1n1
# How fast an emulated disk is says nothing of a real one.
printf '#!/bin/sh\nshift && exec "$@"\n' >$root/bin/timeout
chmod +x $root/bin/timeout
export PATH="$root/bin:$PATH"
begins() { head -c 1048576 /dev/nvme0n1 | cksum && head -c 1048576 /dev/nvme1n1 | cksum; }
first=$(begins)

sh "$script" $root
[ "$(findmnt --noheadings --output SOURCE "$work")" = '/dev/nvme2n1[/spindown/var/lib/spindown/work]' ]
for folder in "$work" $root/var/lib/spindown/run $root/opt/spindown/run; do
    findmnt --noheadings --output OPTIONS "$folder" | grep nosuid | grep nodev | grep noatime
done
[ "$(stat -c '%a %u %g' "$work")" = '2750 12 34' ]
[ "$(stat -c %a $root/run/spindown-store/spindown)" = 700 ]

# Again.
touch "$work/kept"
mounts=$(findmnt --list)
[ -z "$(sh "$script" $root)" ]
[ "$(findmnt --list)" = "$mounts" ]

# After a reboot.
umount $root/opt/spindown/run $root/var/lib/spindown/run "$work" $root/run/spindown-store
[ ! -e "$work/kept" ]
sh "$script" $root
[ -e "$work/kept" ]
[ "$(begins)" = "$first" ]
