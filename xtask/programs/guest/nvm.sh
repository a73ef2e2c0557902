# Volumes on persistent memory, and power cuts: nvm.sh PHASE [ALONE BESIDE [OPERATIONS]]
#   first     makes the volumes, then writes until the power is cut
#   next      checks and verifies what is there, then writes until the power is cut
#   noticed   of writers that lied: each must miss something
#   end       checks, verifies, unmounts, checks
#   suites    suites of others on both volumes, at the same time: fsx, so many operations; pjdfstest
#   devdax    a memory without a file system
# ALONE and BESIDE are the profiles with which /mnt/alone (in one memory) and /mnt/beside (on a
# disk, with its metadata in both memories) are mounted; writers rest on what a profile promises.
. /mnt/share/guest.sh
phase=$1
alone=/mnt/node0/volume beside=/dev/vda
kinds='append rename mmap direct sqlite'
declare -A of=([alone]=$alone [beside]=$beside)
declare -A profile=([alone]=${2-cached} [beside]=${3-cached})
# Data moves to the disk as early as it can: emulated processors write little.
nvram=page_cache=nvram,nvram=16M,nvram_low=90
declare -A options=(
    [cached]='' [lie]=,commit=3600
    [strict]=,page_cache=none [posix]=,page_cache=none,durability=posix
    [nvram]=,$nvram [nvram-sync]=,$nvram,nvram_absorb=sync
)
# MANNER of kill.py.
declare -A manner=(
    [cached]=honest [lie]=lie [strict]=returned [posix]=honest [nvram]=written [nvram-sync]=honest
)

# Which memory is pmem0 differs from boot to boot; its node does not.
node_of() { cat "/sys/block/pmem$1/device/numa_node"; }

memory() {
    modules nfit nd_pmem dax_pmem device_dax ext4 virtio_blk || return
    if [ "$phase" = first ]; then
        for number in 0 1; do
            ndctl create-namespace -f -e "namespace$number.0" -m fsdax || return
            mkfs.ext4 -q -b 4096 -F -L "node$(node_of "$number")" "/dev/pmem$number" || return
        done
    fi
    for number in 0 1; do
        local node
        node=$(node_of "$number")
        mkdir -p "/mnt/node$node"
        [ "$(e2label "/dev/pmem$number")" = "node$node" ] || return
        mount -o dax=always "/dev/pmem$number" "/mnt/node$node" || return
    done
}

make_alone() { "$dure" mkfs "$alone" --size 256M; }
make_beside() {
    # Two segments of each journal are the least that may be given to data.
    "$dure" mkfs "$beside" --nvm /mnt/node0/meta --nvm /mnt/node1/meta --nvm-size 96M \
        --require-dax --journals 4
}

mounted() {
    mkdir -p "/mnt/$1"
    # direct: refused unless the kernel maps it with MAP_SYNC. Users of pjdfstest are others.
    "$dure" mount "${of[$1]}" "/mnt/$1" \
        -o "nvm=direct,allow_other,log=$S/$1.log${options[${profile[$1]}]}"
}

program() { /usr/bin/python3 -B "$S/programs/kill.py" "$@"; }

# verify VOLUME
verify() {
    for kind in $kinds; do program verify "$kind" "/mnt/$1" "$S/$1.$kind" 1 || return; done
}

# lost VOLUME: every writer that acknowledged misses something.
lost() {
    for kind in $kinds; do
        if program verify "$kind" "/mnt/$1" "$S/$1.$kind" 1; then
            echo "$kind missed nothing"
            return 1
        fi
    done
}

nodes() { [ "$(for number in 0 1; do node_of "$number"; done | sort | tr -d '\n')" = 01 ]; }

# Of the second memory's namespace, a character device that no file system is on.
devdax() {
    local device name said
    device=$(findmnt -no SOURCE /mnt/node1)
    name=$(cat "/sys/block/${device##*/}/device/namespace")
    umount /mnt/node1 && ndctl create-namespace -f -e "$name" -m devdax || return
    device=$(echo /dev/dax*)
    said=$("$dure" mkfs "$device" 2>&1) && return 1
    echo "$said"
    [[ $said == *$device* ]] && [[ $said != *panicked* ]]
}

# The host judges what pjdfstest says: of a place, where it runs.
pjdfstest() {
    local place=$1 second=/dev/shm/second.$1
    mkdir -p "$2" "$second" || return
    "$S/pjdfstest" -c "$S/pjdfstest.toml" -p "$2" -s "$second" >"$S/$place.pjdfstest" 2>&1
    grep -q "^Summary: " "$S/$place.pjdfstest"
}

fsx() {
    mkdir -p "/tmp/fsx.$1" && "$S/fsx" -f "$S/fsx.toml" -S 1 -N "$2" -P "/tmp/fsx.$1" "/mnt/$1/fsx"
}

# both FUNCTION [ARGUMENT]: on both volumes at the same time.
both() {
    local alone
    "$1" alone "${@:2}" &
    alone=$!
    "$1" beside "${@:2}" && wait "$alone"
}
# What `dure info` says of dirty pages in persistent memory; moved is what went to the disk.
absorbed() {
    local said
    said=$("$dure" info "/mnt/$1" | sed -n 's/^data in persistent memory *//p')
    [ -z "$said" ] || echo "note $1 (${profile[$1]}): data in persistent memory $said"
}
pjdfstest_on() { pjdfstest "$1" "/mnt/$1/pjdfstest"; }

case_of "file systems on the memory, mounted with DAX" memory
if [ "$phase" = devdax ]; then
    case_of "a memory in devdax mode is refused by name" devdax
    exit
fi
if [ "$phase" = first ]; then
    case_of "each memory is on a node of its own" nodes
    case_of "mkfs in persistent memory alone" make_alone
    case_of "mkfs on a disk, metadata in two memories" make_beside
fi
for volume in alone beside; do
    if [ "$phase" != first ]; then
        case_of "$volume: dure check" "$dure" check --data "${of[$volume]}"
    fi
    case_of "$volume: mount, mapped directly" mounted "$volume"
    case $phase in
        next | end) case_of "$volume: everything acknowledged is there" verify "$volume" ;;
        noticed) case_of "canary: $volume: every writer's loss is noticed" lost "$volume" ;;
    esac
done
if [ "$phase" = first ] || [ "$phase" = next ]; then
    for volume in alone beside; do
        for kind in $kinds; do
            program run "$kind" "/mnt/$volume" "$S/$volume.$kind" 1 \
                "${manner[${profile[$volume]}]}" &
        done
    done
    echo "reached writing"
    wait -n
    echo "FAILED a writer | it ended before the power did"
    exit 1
fi
if [ "$phase" = suites ]; then
    case_of "fsx on both: ${profile[*]}" both fsx "$4"
    [ -e "$S/tmpfs.pjdfstest" ] || case_of "pjdfstest on tmpfs" pjdfstest tmpfs /tmp/pjdfstest
    case_of "pjdfstest on both comes to its end: ${profile[*]}" both pjdfstest_on
fi
for volume in alone beside; do
    absorbed "$volume"
    case_of "$volume: unmount" "$dure" umount "/mnt/$volume"
    case_of "$volume: dure check after the unmount" "$dure" check --data "${of[$volume]}"
done
