# Devices of ours as block devices of the kernel: ublk.sh KILLS; ublk.sh rates: how fast null is
# beside the kernel's.
. /mnt/share/guest.sh
kills=$1
node=/dev/ublkb0

# export DEVICE OPTIONS...: in the background; returns when the block device is there.
export_of() {
    "$dure" blk export --ublk --device "$@" >/tmp/export.out 2>/tmp/export.err &
    server=$!
    for _ in $(seq 300); do
        [ -s /tmp/export.out ] && return
        kill -0 $server 2>/dev/null || break
        sleep 0.1
    done
    cat /tmp/export.err
    return 1
}

# The server ends, and the block device with it.
ended() {
    kill -TERM $server && wait $server || return
    [ ! -e $node ] && [ ! -s /tmp/export.err ]
}

without_a_module() {
    local said
    said=$("$dure" blk export --ublk --device null 2>&1) && return 1
    echo "$said"
    [[ $said == *'modprobe ublk_drv'* ]]
}

# queues N DEPTH: as asked for.
queues() {
    local found
    found="$(find /sys/block/ublkb0/mq -mindepth 1 -maxdepth 1 | wc -l) $(cat /sys/block/ublkb0/mq/0/nr_tags)"
    echo "$found"
    [ "$found" = "$1 $2" ]
}

verified() {
    fio --name=verify --filename=$node --direct=1 --rw=randwrite --bsrange=4k-256k --bs_unaligned=0 \
        --size=16M --offset_increment=16M --numjobs=3 --iodepth=8 --ioengine=io_uring \
        --verify=crc32c --do_verify=1 --verify_fatal=1 --fdatasync=32
}

discarded() {
    dd if=/dev/urandom of=$node bs=1M count=8 oflag=direct && blkdiscard $node || return
    cmp -n 8388608 $node /dev/zero || return
    dd if=/dev/urandom of=$node bs=1M count=8 oflag=direct && blkdiscard -z -o 4096 -l 1048576 $node || return
    cmp -i 4096:0 -n 1048576 $node /dev/zero && ! cmp -s -n 4096 $node /dev/zero
}

ext4() {
    mkfs.ext4 -q -b 4096 -F $node && mkdir -p /mnt/e && mount $node /mnt/e || return
    cp -a /usr/share/python3 /usr/share/perl5 /etc /mnt/e/ 2>/dev/null
    (cd /mnt/e && find . -type f -print0 | sort -z | xargs -0 sha256sum >/tmp/tree.sums)
    umount /mnt/e && e2fsck -fn $node && mount $node /mnt/e || return
    (cd /mnt/e && sha256sum --quiet -c /tmp/tree.sums) && umount /mnt/e
}

volume() {
    "$dure" mkfs $node --force && mkdir -p /mnt/v && "$dure" mount $node /mnt/v || return
    cp -a /usr/share/python3 /mnt/v/ && "$dure" umount /mnt/v && "$dure" check --data $node
}

# A writer on ext4 that must notice nothing, while the server is killed and recovered.
recovered() {
    mount $node /mnt/e || return
    (
        number=0
        while [ ! -e /tmp/enough ]; do
            number=$((number + 1))
            head -c $((number % 7 * 9000 + 100)) /dev/urandom >/mnt/e/file$((number % 50)) || exit 1
            sync /mnt/e/file$((number % 50)) || exit 1
            sha256sum /mnt/e/file$((number % 50)) >/tmp/sum$((number % 50))
        done
        echo $number >/tmp/written
    ) 2>/tmp/writer.err &
    local writer=$!
    for _ in $(seq "$kills"); do
        sleep 2
        kill -9 $server
        wait $server
        export_of /dev/vda --take-over 0 || return
    done
    sleep 2
    touch /tmp/enough
    wait $writer || { cat /tmp/writer.err; return 1; }
    [ "$(cat /tmp/written)" -gt 3 ] || { echo "only $(cat /tmp/written) writes"; return 1; }
    umount /mnt/e && e2fsck -fn $node && mount $node /mnt/e || return
    for sum in /tmp/sum*; do sha256sum --quiet -c "$sum" || return; done
    umount /mnt/e
}

refused() {
    local said
    said=$("$dure" blk export --ublk --device null --take-over 7 2>&1) && return 1
    [[ $said == */dev/ublkb7* ]] || { echo "$said"; return 1; }
    # It has a server.
    said=$("$dure" blk export --ublk --device null --size 512M --take-over 0 2>&1) && return 1
    [[ $said == */dev/ublkb0* ]] || { echo "$said"; return 1; }
    said=$("$dure" blk export --ublk --device null --size 4M --take-over 0 2>&1) && return 1
    [[ $said == *size* ]] || { echo "$said"; return 1; }
    said=$("$dure" blk export --ublk --device null --number 0 2>&1) && return 1
    [[ $said == */dev/ublkb0* ]] || { echo "$said"; return 1; }
}

# A volume on a device whose server is stopped: its log names what hangs, and all goes on after.
hangs() {
    "$dure" mkfs $node --force && "$dure" mount $node /mnt/v -o log=/tmp/late.log || return
    kill -STOP $server
    (echo content >/mnt/v/file && sync /mnt/v/file && touch /tmp/synced) &
    local writer=$! line=''
    for _ in $(seq 60); do
        line=$(grep 'late: ' /tmp/late.log) && break
        sleep 0.5
    done
    [ ! -e /tmp/synced ] || { echo 'it does not hang'; return 1; }
    kill -CONT $server
    wait $writer && [ -e /tmp/synced ] || return
    echo "$line"
    [[ $line == *"late: $node: "*' has not returned for '* ]] || { cat /tmp/late.log; return 1; }
    "$dure" umount /mnt/v && "$dure" check --data $node
}

# vanishes ENGINE OPTIONS...: the device goes while requests are under way.
vanishes() {
    export_of null --delay 300 --hw-queues 2 || return
    timeout -s KILL 60 "$dure" bench blk --device $node --rw randread --jobs 2 --seconds 50 \
        --engine "$@" >/tmp/load.log 2>&1 &
    local load=$! status
    sleep 4
    kill -0 $load || { cat /tmp/load.log; return 1; }
    ended || return
    wait $load
    status=$?
    cat /tmp/load.log
    [ $status -eq 1 ] && grep -q "$node: read of 1 block at block [0-9]* failed" /tmp/load.log &&
        ! grep -q panicked /tmp/load.log
}

rate() {
    fio --name=rate --filename="$1" --direct=1 --rw=randread --bs=4k --ioengine=io_uring --iodepth=32 \
        --numjobs="$2" --group_reporting --time_based --runtime=3 --minimal | cut -d ';' -f 8
}

rates() {
    modules ublk_drv null_blk
    case_of "null as /dev/ublkb0, $(nproc) processors" export_of null --hw-queues "$(nproc)"
    for jobs in 1 2 4 8 16; do
        [ $jobs -le "$(nproc)" ] || break
        echo "note emulated, $(nproc) processors, $jobs jobs of 32: null over ublk $(rate $node $jobs) IOPS, null_blk $(rate /dev/nullb0 $jobs) IOPS"
    done
    case_of "a signal ends null" ended
}

if [ "$kills" = rates ]; then
    rates
    exit
fi
case_of "without the module the error says what to load" without_a_module
modules ublk_drv ext4 virtio_blk
case_of "ram as /dev/ublkb0" export_of ram --size 256M --hw-queues 4 --nr-requests 64
case_of "4 hardware queues of 64 requests" queues 4 64
case_of "fio reads what it wrote" verified
case_of "discards and zeroes" discarded
case_of "ext4" ext4
case_of "a volume of ours" volume
case_of "a request that hangs is named in the log of the mount" hangs
case_of "a signal ends it" ended
case_of "a slow drive" export_of ram --size 256M --drive 960-pro --hw-queues 2
case_of "fio reads what it wrote to a slow drive" verified
case_of "a signal ends the slow drive" ended
for engine in "psync" "libaio --iodepth 16" "io_uring --iodepth 16"; do
    # shellcheck disable=SC2086 # an engine and its options
    case_of "a device vanishes under $engine" vanishes $engine
done
case_of "a disk as /dev/ublkb0" export_of /dev/vda --hw-queues 2
case_of "ext4 on the disk" ext4
case_of "killed $kills times and recovered under ext4" recovered
case_of "what cannot be recovered is refused" refused
case_of "a signal ends the recovered one" ended
