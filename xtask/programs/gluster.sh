#!/bin/sh
# Gluster on four bricks, replica 2 and distribute, in namespaces of its own: the servers of Gluster
# and of the mounts, the network (loopback only) and what Gluster keeps end with this program.
#   gluster.sh dure|ext4 FOLDER DURE FILES [OPTION]
# Each step prints its name, each figure `seconds: WHAT N`; the first step that fails ends the program.
set -eu
kind=$1 folder=$2 dure=$3 files=$4 options=noatime${5:+,$5}
host=10.77.0.1
bricks='1 2 3 4'
mnt=$folder/mnt

step() { echo "step: $1"; }
brick() { echo "$host:$folder/b$1/data"; }

# Waits until a command succeeds: WHAT SECONDS COMMAND...
until_true() {
    what=$1 left=$2
    shift 2
    until "$@" >"$folder/log/until" 2>&1; do
        left=$((left - 1))
        if [ "$left" -le 0 ]; then
            echo "$what: not within the time; last:" >&2
            tail -n 20 "$folder/log/until" >&2
            exit 1
        fi
        sleep 1
    done
}

timed() {
    what=$1
    shift
    begin=$(date +%s%N)
    "$@" >"$folder/log/timed"
    echo "$(date +%s%N) $begin" | awk -v what="$what" '{ printf "seconds: %s %.1f\n", what, ($1 - $2) / 1e9 }'
}

mount_brick() {
    mkdir -p "$folder/b$1"
    if [ "$kind" = ext4 ]; then
        mount -o loop,noatime "$folder/b$1.img" "$folder/b$1"
        return
    fi
    "$dure" mount --foreground "$folder/b$1.img" "$folder/b$1" -o "$options" \
        >>"$folder/log/mount$1.out" 2>>"$folder/log/mount$1.err" &
    echo $! >"$folder/server$1"
    until_true "mount of brick $1" 30 mountpoint -q "$folder/b$1"
    if grep 'transport=uring:' "$folder/log/mount$1.err" >&2; then exit 1; fi
}

brick_process() { cat /run/gluster/vols/files/*-b"$1"-data.pid; }
# Ends the server of a mount, and the process of the brick, which would keep the dead mount. Of ext4
# there is no server: the brick is only away.
end_brick() {
    if [ "$kind" = dure ]; then
        kill -9 "$(cat "$folder/server$1")"
    fi
    kill -9 "$(brick_process "$1")"
}
all_online() { [ "$(gluster volume status files | awk 'NF > 1 && $(NF - 1) == "Y"' | wc -l)" -ge 5 ]; }
connected() { ! gluster volume heal files info summary | grep -q 'not connected'; }
nothing_to_heal() {
    gluster volume heal files info summary | tee /dev/stderr | awk -F': ' '
        /^Status/ { bricks += ($2 == "Connected") }
        /^Total Number/ { entries += $2 }
        END { exit !(bricks == 4 && entries == 0) }'
}
same() { diff -r --no-dereference --exclude=.glusterfs "$1" "$2"; }
pairs_same() { same "$folder/b1/data" "$folder/b2/data" && same "$folder/b3/data" "$folder/b4/data"; }

# What clients read, and each pair of bricks, byte by byte.
compare() {
    until_true "nothing left to heal ($1)" 120 nothing_to_heal
    until_true "bricks that hold the same ($1)" 120 pairs_same
    diff -r "$folder/source" "$mnt/tree"
}

ip link set lo up
ip address add "$host/32" dev lo
for state in /var/lib/glusterd /run /var/log/glusterfs; do
    mount -t tmpfs gluster "$state"
done
mkdir "$folder/log" "$mnt"

step 'four bricks'
for number in $bricks; do
    if [ "$kind" = ext4 ]; then
        truncate -s 512M "$folder/b$number.img"
        mkfs.ext4 -q "$folder/b$number.img"
    else
        "$dure" mkfs "$folder/b$number.img" --size 512M >"$folder/log/mkfs"
    fi
    mount_brick "$number"
    mkdir "$folder/b$number/data"
done

step 'a volume of two pairs'
glusterd || { grep " E " /var/log/glusterfs/glusterd.log >&2; exit 1; }
until_true glusterd 30 gluster volume list
# force: all bricks are on one machine.
gluster --mode=script volume create files replica 2 \
    "$(brick 1)" "$(brick 2)" "$(brick 3)" "$(brick 4)" force >"$folder/log/create"
gluster volume start files >"$folder/log/start"
until_true 'all bricks online' 60 all_online
mount -t glusterfs "$host:/files" "$mnt"

step 'trees and a large file'
number=0
while [ "$number" -lt "$files" ]; do
    at=$folder/source/d$((number / 12))
    mkdir -p "$at"
    head -c $((number * 97 % 24576)) /dev/urandom >"$at/file$number"
    number=$((number + 1))
done
ln "$folder/source/d0/file1" "$folder/source/d0/hard"
ln -s file1 "$folder/source/d0/soft"
tar -C "$folder/source" -cf "$folder/source.tar" .
mkdir "$mnt/tree"
timed 'tar x' tar -C "$mnt/tree" -xf "$folder/source.tar"
timed 'diff -r' diff -r "$folder/source" "$mnt/tree"
timed '64 MiB in order, fsync' dd if=/dev/zero of="$mnt/large" bs=1M count=64 conv=fsync status=none
cp -a "$folder/source" "$mnt/gone"
timed 'rm -rf' rm -rf "$mnt/gone"
compare 'no brick was lost'

step 'a brick lost, and the client goes on'
cp -a "$folder/source" "$mnt/unsynced"
end_brick 1
for tree in "$mnt/tree" "$folder/source"; do
    rm -r "$tree/d1"
    mkdir "$tree/new"
    # Without symbolic links: Gluster 10.3 does not heal new ones, on ext4 neither.
    cp -a "$tree/d3" "$tree/new/d3"
    mv "$tree/d2/file24" "$tree/new/file24"
    echo changed >>"$tree/d0/file2"
done
diff -r "$folder/source" "$mnt/tree"

step 'mounted again and healed'
umount -l "$folder/b1"
mount_brick 1
gluster volume start files force >"$folder/log/start"
until_true 'all bricks online' 60 all_online
until_true 'all bricks connected' 60 connected
begin=$(date +%s)
until_true 'a heal that begins' 60 gluster volume heal files
until_true 'nothing left to heal' 120 nothing_to_heal
# What the brick had taken and not made durable is in no list of Gluster's: all is looked at.
until_true 'a full heal that begins' 60 gluster volume heal files full
until_true 'bricks that hold the same' 300 pairs_same
echo "seconds: healed in $(($(date +%s) - begin))"
compare 'healed'

step 'the healed brick alone'
kill -9 "$(brick_process 2)"
umount "$mnt"
mount -t glusterfs "$host:/files" "$mnt"
diff -r "$folder/source" "$mnt/tree"

step 'the end'
umount "$mnt"
gluster --mode=script volume stop files force >"$folder/log/stop"
for number in $bricks; do
    until_true "unmount of brick $number" 30 umount "$folder/b$number"
done
if [ "$kind" = dure ]; then
    for number in $bricks; do
        until_true "end of the server $number" 30 "$dure" check "$folder/b$number.img" --data
    done
fi
echo 'all steps are done'
