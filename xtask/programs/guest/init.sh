#!/bin/busybox sh
# The first process of the guest. Its root is the host's, to be read only; what it may write is in
# memory, or in /mnt/share, which is a directory of the host that outlives a power cut.
B=/bin/busybox
fail() { echo "guest: $*"; $B poweroff -f; }
share() {
    $B mount -t 9p -o "trans=virtio,version=9p2000.L,msize=262144,$3" "$1" "$2" || fail "no share $1"
}

$B mount -t proc proc /proc
$B mount -t sysfs sysfs /sys
$B mount -t devtmpfs devtmpfs /dev
for module in /lib/*.ko; do $B insmod "$module" || fail "$module"; done
share host /host ro,cache=loose
for place in proc sys dev; do $B mount --move "/$place" "/host/$place" || fail "/host/$place"; done
for place in tmp run mnt; do $B mount -t tmpfs "$place" "/host/$place" || fail "/host/$place"; done
$B mkdir -p /host/mnt/share /host/mnt/lib/modules /host/dev/shm
$B mount -t tmpfs shm /host/dev/shm
$B mount -t tracefs tracefs /host/sys/kernel/tracing
# Without a cache: who wrote a line there knows that the host has it.
share share /host/mnt/share cache=none
share modules /host/mnt/lib/modules ro,cache=loose
# What the suite says goes to the second serial line; the kernel has the first.
$B stty -F /host/dev/ttyS1 raw -echo
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C
read -r script < /host/mnt/share/script
# shellcheck disable=SC2086 # a script and its arguments
$B chroot /host /bin/bash /mnt/share/$script </host/dev/null >/host/dev/ttyS1 2>&1
echo "ended $?" >/host/dev/ttyS1
# Until the serial line is empty.
$B sleep 1
$B poweroff -f
