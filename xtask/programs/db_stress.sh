#!/bin/sh
# db_stress.sh FOLDER: makes FOLDER/db_stress, RocksDB's own stress test, which no package of Debian has:
# its sources from Debian's source package of the RocksDB that is installed, linked with that. Needs
# g++, librocksdb-dev, libgflags-dev and the sources of packages; about 10 minutes of one core.
set -eu
folder=$1
mkdir -p "$folder/lists/partial"
cd "$folder"
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
echo "deb-src http://deb.debian.org/debian $suite main" >sources.list
apt() {
    apt-get -q -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$folder/lists" -o APT::Sandbox::User=root "$@"
}
if ! ls -d rocksdb-*/ >/dev/null 2>&1; then
    apt update
    apt source --download-only rocksdb
    tar xf rocksdb_*.orig.tar.*
fi
cd rocksdb-*/
mkdir -p "$folder/objects"
for file in db_stress_tool/*.cc; do
    object=$folder/objects/$(basename "$file" .cc).o
    [ -s "$object" ] && continue
    c++ -std=c++17 -O1 -w -c "$file" -o "$object.new" -I . -I include -DGFLAGS=1 -DOS_LINUX \
        -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX -DROCKSDB_PTHREAD_ADAPTIVE_MUTEX \
        -DROCKSDB_FALLOCATE_PRESENT -DROCKSDB_RANGESYNC_PRESENT -DROCKSDB_MALLOC_USABLE_SIZE \
        -DROCKSDB_SCHED_GETCPU_PRESENT -DROCKSDB_AUXV_GETAUXVAL_PRESENT -DSNAPPY -DZLIB -DBZIP2 \
        -DLZ4 -DZSTD
    mv "$object.new" "$object"
done
c++ "$folder"/objects/*.o -o "$folder/db_stress" -Wl,--copy-dt-needed-entries -lrocksdb -lgflags -lpthread
