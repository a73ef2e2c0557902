#!/bin/sh
# build.sh DURE FOLDER: makes FOLDER/libdure_rocksdb.so, with dure.h in DURE/include and libdure.so in
# DURE/lib. Needs a compiler of C++17 and the headers of the RocksDB that programs will use (Debian:
# librocksdb-dev): the interface changes between its versions. More words for the compiler are in
# CXXFLAGS. It is not unloaded: libdure is not.
set -eu
dure=$1 folder=$2
here=$(dirname "$0")
${CXX:-c++} -std=c++17 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra -Werror ${CXXFLAGS:-} \
    -shared -o "$folder/libdure_rocksdb.so" -Wl,-soname,libdure_rocksdb.so -Wl,-z,relro,-z,now,-z,nodelete \
    -I "$dure/include" "$here"/src/*.cc -L "$dure/lib" -ldure -lrocksdb -lpthread
