#include "status.h"

#include <dure.h>

#include <cerrno>

namespace dure_rocksdb {

using rocksdb::IOStatus;

IOStatus status_of(int64_t result, const std::string& during,
                   const std::string& path, const std::string& words) {
  const std::string what = "While " + during + ": " + path;
  switch (-result) {
    case ENOSPC:
    case EDQUOT: {
      IOStatus status = IOStatus::NoSpace(what, words);
      // RocksDB goes on by itself once there is room.
      status.SetRetryable(true);
      return status;
    }
    case ENOENT:
      return IOStatus::PathNotFound(what, words);
    case EXDEV:
    case EOPNOTSUPP:
      return IOStatus::NotSupported(what, words);
    default:
      return IOStatus::IOError(what, words);
  }
}

IOStatus judge(int64_t result, const char* during, const std::string& path) {
  if (result >= 0) {
    return IOStatus::OK();
  }
  return status_of(result, during, path, dure_last_error());
}

}  // namespace dure_rocksdb
