// A database on a volume: what is put in comes out, also of checkpoints, backups and after a
// reopen.
#include <rocksdb/table.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>
#include <rocksdb/write_batch.h>

#include <map>

#include "check.h"

using namespace rocksdb;

namespace {

constexpr uint64_t kKeys = 20000;

struct Environment {
  std::shared_ptr<Env> guard;
  Env* env = nullptr;

  explicit Environment(const std::string& uri) : env(Env::Default()) {
    CHECK_OK(Env::CreateFromUri(ConfigOptions(), "", uri, &env, &guard));
  }
};

Options options_of(Env* env, bool direct) {
  Options options;
  options.env = env;
  options.create_if_missing = true;
  options.write_buffer_size = 1 << 20;
  options.target_file_size_base = 1 << 20;
  options.use_direct_reads = direct;
  options.use_direct_io_for_flush_and_compaction = direct;
  options.recycle_log_file_num = 2;
  BlockBasedTableOptions table;
  table.no_block_cache = true;
  options.table_factory.reset(NewBlockBasedTableFactory(table));
  return options;
}

using Model = std::map<std::string, std::string>;

void fill(DB* db, Model* model, uint64_t first) {
  WriteOptions synced;
  synced.sync = true;
  for (uint64_t i = 0; i < kKeys; ++i) {
    const uint64_t number = first + i * 7919 % kKeys;
    const std::string key = key_of(number), value = value_of(first + i, 150);
    CHECK_OK(db->Put(i % 500 == 0 ? synced : WriteOptions(), key, value));
    (*model)[key] = value;
    if (i % 10 == 3) {
      CHECK_OK(db->Delete(WriteOptions(), key_of(first + i / 2)));
      model->erase(key_of(first + i / 2));
    }
  }
  CHECK_OK(db->SyncWAL());
}

void compare_in_order(DB* db, const Model& model, const ReadOptions& how) {
  std::unique_ptr<Iterator> at(db->NewIterator(how));
  auto expected = model.begin();
  for (at->SeekToFirst(); at->Valid(); at->Next(), ++expected) {
    CHECK(expected != model.end());
    CHECK(at->key() == expected->first && at->value() == expected->second);
  }
  CHECK_OK(at->status());
  CHECK(expected == model.end());
}

// Forwards, with reads ahead that nothing waits for, and by MultiGet.
void compare(DB* db, const Model& model) {
  ReadOptions how;
  compare_in_order(db, model, how);
  how.async_io = true;
  how.readahead_size = 1 << 20;
  compare_in_order(db, model, how);
  how.async_io = false;
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 2 * kKeys; i += 17) keys.push_back(key_of(i));
  std::vector<Slice> slices(keys.begin(), keys.end());
  std::vector<PinnableSlice> values(keys.size());
  std::vector<Status> found(keys.size());
  db->MultiGet(how, db->DefaultColumnFamily(), slices.size(), slices.data(),
               values.data(), found.data());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto expected = model.find(keys[i]);
    CHECK(found[i].ok() == (expected != model.end()));
    CHECK(found[i].ok() || found[i].IsNotFound());
    CHECK(!found[i].ok() || values[i] == expected->second);
  }
}

std::unique_ptr<DB> open(const Options& options, const std::string& name) {
  DB* db = nullptr;
  CHECK_OK(DB::Open(options, name, &db));
  return std::unique_ptr<DB>(db);
}

// Backs `db` up to a folder of `to`, restores it in `options.env`, and compares.
void backup(DB* db, const Options& options, const Model& model, Env* to,
            const std::string& folder) {
  BackupEngineOptions how(folder, to);
  BackupEngine* made = nullptr;
  CHECK_OK(BackupEngine::Open(options.env, how, &made));
  const std::unique_ptr<BackupEngine> engine(made);
  CHECK_OK(engine->CreateNewBackup(db, true));
  CHECK_OK(engine->CreateNewBackup(db));
  CHECK_OK(engine->VerifyBackup(2, true));
  CHECK_OK(engine->RestoreDBFromLatestBackup("/restored", "/restored"));
  compare(open(options, "/restored").get(), model);
  CHECK_OK(DestroyDB("/restored", options));
}

void play(const Environment& own, const std::string& uri,
          const std::string& other, bool direct) {
  const Options options = options_of(own.env, direct);
  const Environment same_volume(uri), host("");
  Model model;
  {
    const std::unique_ptr<DB> db = open(options, "/db");
    fill(db.get(), &model, 0);
    compare(db.get(), model);
    CHECK_OK(db->Flush(FlushOptions()));
    fill(db.get(), &model, kKeys / 2);
    DB* again = nullptr;
    const Status locked = DB::Open(options, "/db", &again);
    CHECK(locked.IsIOError() && again == nullptr);
  }
  std::unique_ptr<DB> db = open(options, "/db");
  compare(db.get(), model);
  CHECK_OK(db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
  compare(db.get(), model);
  CHECK_OK(db->VerifyChecksum());

  Checkpoint* made = nullptr;
  CHECK_OK(Checkpoint::Create(db.get(), &made));
  const std::unique_ptr<Checkpoint> checkpoint(made);
  CHECK_OK(checkpoint->CreateCheckpoint("/checkpoint"));
  backup(db.get(), options, model, same_volume.env, "/backup");
  backup(db.get(), options, model, host.env,
         other + (direct ? "/direct" : "/plain"));
  // What is there now is not in the checkpoint.
  CHECK_OK(db->Put(WriteOptions(), "later", "x"));
  compare(open(options, "/checkpoint").get(), model);
  db.reset();
  for (const char* name : {"/db", "/checkpoint"}) {
    CHECK_OK(DestroyDB(name, options));
  }
}

}  // namespace

int database(const std::string& uri, const std::string& other) {
  const Environment own(uri);
  for (const bool direct : {false, true}) {
    play(own, uri, other, direct);
  }
  Options options = options_of(own.env, false);
  options.allow_mmap_reads = true;
  DB* db = nullptr;
  const Status mapped = DB::Open(options, "/mapped", &db);
  CHECK(!mapped.ok() && mapped.ToString().find("cannot be mapped") !=
                            std::string::npos);
  puts("database: what was put in came out");
  return 0;
}
