# Volumes on persistent memory, and power cuts: nvm.sh PHASE [MANNER [OPTIONS]]
#   first MANNER     makes the volumes, then writes until the power is cut
#   next MANNER      checks and verifies what is there, then writes until the power is cut
#   noticed          of writers that lied: each must miss something
#   end              checks, verifies, unmounts, checks
# MANNER is that of kill.py; OPTIONS are of both mounts.
# Volumes: /mnt/alone lies in memory alone, /mnt/beside on a disk with its metadata in both memories.
. /mnt/share/guest.sh
phase=$1 manner=${2-} options=${3:+,$3}
alone=/mnt/node0/volume beside=/dev/vda
kinds='append rename mmap direct sqlite'
declare -A of=([alone]=$alone [beside]=$beside)

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
    "$dure" mkfs "$beside" --nvm /mnt/node0/meta --nvm /mnt/node1/meta --nvm-size 96M --require-dax
}

mounted() {
    mkdir -p "/mnt/$1"
    # direct: refused unless the kernel maps it with MAP_SYNC.
    "$dure" mount "${of[$1]}" "/mnt/$1" -o "nvm=direct,log=$S/$1.log$options"
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

case_of "file systems on the memory, mounted with DAX" memory
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
            program run "$kind" "/mnt/$volume" "$S/$volume.$kind" 1 "$manner" &
        done
    done
    echo "reached writing"
    wait -n
    echo "FAILED a writer | it ended before the power did"
    exit 1
fi
for volume in alone beside; do
    case_of "$volume: unmount" "$dure" umount "/mnt/$volume"
    case_of "$volume: dure check after the unmount" "$dure" check --data "${of[$volume]}"
done
if [ "$phase" = end ]; then
    case_of "a memory in devdax mode is refused by name" devdax
fi
