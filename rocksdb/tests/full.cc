// A volume that is full: RocksDB is told NoSpace, loses nothing, and goes on when there is room.
#include <rocksdb/sst_file_manager.h>

#include "check.h"

using namespace rocksdb;

namespace {

// Fills what is left, but for little.
void fill(FileSystem* fs) {
  std::unique_ptr<FSWritableFile> file;
  CHECK_OK(fs->NewWritableFile("/ballast", FileOptions(), &file, nullptr));
  const std::string data = value_of(7, 64 << 10);
  uint64_t room = 0;
  do {
    CHECK_OK(file->Append(data, IOOptions(), nullptr));
    CHECK_OK(fs->GetFreeSpace("/", IOOptions(), &room, nullptr));
  } while (room > (8 << 20));
  CHECK_OK(file->Fsync(IOOptions(), nullptr));
  CHECK_OK(file->Close(IOOptions(), nullptr));
}

}  // namespace

int full(const std::string& uri) {
  Options options;
  std::shared_ptr<Env> guard;
  CHECK_OK(Env::CreateFromUri(ConfigOptions(), "", uri, &options.env, &guard));
  const std::shared_ptr<FileSystem> fs = options.env->GetFileSystem();
  options.create_if_missing = true;
  options.write_buffer_size = 1 << 20;
  fill(fs.get());
  DB* opened = nullptr;
  CHECK_OK(DB::Open(options, "/full", &opened));
  std::unique_ptr<DB> db(opened);
  WriteOptions synced;
  synced.sync = true;
  uint64_t put = 0;
  Status status;
  while ((status = db->Put(synced, key_of(put), value_of(put, 2000))).ok()) {
    CHECK(++put < 100000);
  }
  if (!status.IsNoSpace()) fprintf(stderr, "%s\n", status.ToString().c_str());
  CHECK(status.IsNoSpace());
  CHECK(put > 100);
  std::string value;
  for (uint64_t number = 0; number < put; ++number) {
    CHECK_OK(db->Get(ReadOptions(), key_of(number), &value));
    CHECK(value == value_of(number, 2000));
  }
  CHECK_OK(fs->DeleteFile("/ballast", IOOptions(), nullptr));
  // A log that could not be written is given up: the database is opened once more.
  db.reset();
  CHECK_OK(DB::Open(options, "/full", &opened));
  db.reset(opened);
  for (uint64_t number = 0; number < put; ++number) {
    CHECK_OK(db->Get(ReadOptions(), key_of(number), &value));
    CHECK(value == value_of(number, 2000));
  }
  for (uint64_t number = put; number < put + 1000; ++number) {
    CHECK_OK(db->Put(synced, key_of(number), value_of(number, 2000)));
  }
  db.reset();
  CHECK_OK(DestroyDB("/full", options));
  printf("full: NoSpace after %llu puts\n",
         static_cast<unsigned long long>(put));
  return 0;
}
