// Failures of dure in the words of RocksDB.
//
// Problem. RocksDB acts on the kind of a failure: it stops writes until there is room (NoSpace), or
// goes on without a file (PathNotFound). Structure. One function that makes an IOStatus of a
// result, with what was done, the path, and dure_last_error(). Invariants. It is called right
// behind the call that failed, in the same thread. On a crash: nothing is kept.
#pragma once

#include <rocksdb/io_status.h>

#include <string>

namespace dure_rocksdb {

// Of a call that returned `result` (-errno); `words` say why.
rocksdb::IOStatus status_of(int64_t result, const std::string& during,
                            const std::string& path, const std::string& words);

// The same, with the words of this thread's last failure; OK if `result` is no failure.
rocksdb::IOStatus judge(int64_t result, const char* during,
                        const std::string& path);

}  // namespace dure_rocksdb
