#!/bin/sh
# link.sh ARCHIVE FOLDER: links libdure.so.0 from the archive that cargo made, with libdure.so as a
# name for it. src/lib.rs says why cargo does not. Not to be unloaded: it has threads, and values of
# threads that may end later.
set -eu
archive=$1 folder=$2
here=$(dirname "$0")
${CC:-cc} -shared -o "$folder/libdure.so.0" -Wl,-soname,libdure.so.0 \
    -Wl,--version-script="$here/dure.map" -Wl,--gc-sections -Wl,-z,defs,-z,relro,-z,now,-z,nodelete \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -lgcc_s -lpthread -lm -ldl -lc
ln -sf libdure.so.0 "$folder/libdure.so"
