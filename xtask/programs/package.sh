#!/bin/sh
# In a clean Debian root, as root: installs the package, uses it as a newcomer would, removes it.
# Each step prints its name; the first that fails ends the program.
set -eu
step() { echo "step: $1"; }

# As systemd makes it at boot; fusermount3 reads it.
test -e /etc/mtab || ln -s ../proc/self/mounts /etc/mtab

step 'install'
dpkg -i /dure.deb
test "$(command -v dure)" = /usr/bin/dure
for name in mkfs mount fsck umount; do test -x "/sbin/$name.dure"; done
for page in man1/dure.1 man1/dure-check.1 man8/mkfs.dure.8 man8/mount.fuse.dure.8; do
    test -e "/usr/share/man/$page.gz"
done
test -e /usr/share/doc/dure/examples/srv-data.mount

step 'rings'
switch=/sys/module/fuse/parameters/enable_uring
test ! -e "$switch" || test "$(cat "$switch")" = Y
grep -q enable_uring /usr/lib/modprobe.d/dure.conf /usr/lib/tmpfiles.d/dure.conf

step 'mkfs(8), fsck(8)'
mkdir -p /srv/data
mkfs -t dure --size 256M /srv/v.img
fsck.dure /srv/v.img

step 'first mount'
dure mount /srv/v.img /srv/data
echo hello > /srv/data/note
umount /srv/data

step 'fstab'
echo '/srv/v.img /srv/data dure defaults,nofail 0 0' >> /etc/fstab
mount /srv/data
test "$(cat /srv/data/note)" = hello
cp -a /usr/share/doc/dure /srv/data/doc

step 'fstab after a reboot'
umount /srv/data
mount -a
diff -r /usr/share/doc/dure /srv/data/doc
findmnt -t dure,fuse.dure /srv/data
umount /srv/data
dure check --data /srv/v.img

step 'the lines in the journal'
# journald alone, without the rest of systemd.
mkdir -p /run/systemd/journal
systemd-machine-id-setup
/lib/systemd/systemd-journald &
journald=$!
until test -S /run/systemd/journal/dev-log; do sleep 0.1; done
ln -sf /run/systemd/journal/dev-log /dev/log
dure mount /srv/v.img /srv/data
dure resize /srv/data 512M
dure umount /srv/data
journalctl --sync
journalctl -t dure -o cat > /lines
for line in 'mounted on /srv/data' 'grown: 256.0 MiB before, 512.0 MiB now' 'unmounted'; do
    grep -q "$line" /lines || { cat /lines; exit 1; }
done
kill "$journald"
rm /dev/log

step 'an ordinary user'
useradd --create-home somebody
su somebody -c '
    set -eu
    cd
    dure mkfs mine.img --size 64M
    mkdir -p m
    dure mount mine.img m
    echo mine > m/note
    dure info m
    dure umount m
    dure check mine.img
    test "$(dure cat mine.img /note)" = mine'

step 'remove'
dpkg -r dure
test ! -e /usr/bin/dure
test ! -e /sbin/mkfs.dure
echo 'all steps are done'
