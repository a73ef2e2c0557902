// Makes RocksDB know URIs that begin with dure://, as soon as this library is loaded: because a
// program links with it, or by LD_PRELOAD.

#include <rocksdb/utilities/object_registry.h>

#include "file_system.h"

namespace dure_rocksdb {
namespace {

using rocksdb::ObjectLibrary;

rocksdb::FileSystem* make(const std::string& uri,
                          std::unique_ptr<rocksdb::FileSystem>* made,
                          std::string* error) {
  *made = FileSystem::make(uri, error);
  return made->get();
}

const bool registered = [] {
  const auto pattern =
      ObjectLibrary::PatternEntry("dure", false).AddSeparator("://");
  ObjectLibrary::Default()->AddFactory<rocksdb::FileSystem>(pattern, make);
  return true;
}();

}  // namespace
}  // namespace dure_rocksdb
