// A program that puts keys until it is killed, and says which are durable; then what must be there.
#include <unistd.h>

#include <sstream>
#include <thread>
#include <vector>

#include "check.h"

using namespace rocksdb;

namespace {

constexpr uint64_t kThreads = 4;

std::unique_ptr<DB> open(const std::string& uri, std::shared_ptr<Env>* guard) {
  Options options;
  CHECK_OK(Env::CreateFromUri(ConfigOptions(), "", uri, &options.env, guard));
  options.create_if_missing = true;
  // Many flushes and compactions.
  options.write_buffer_size = 64 << 10;
  options.target_file_size_base = 64 << 10;
  options.max_bytes_for_level_base = 256 << 10;
  options.wal_recovery_mode = WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.paranoid_checks = true;
  DB* db = nullptr;
  CHECK_OK(DB::Open(options, "/killed", &db));
  return std::unique_ptr<DB>(db);
}

// The keys of one thread, in order; each says its own number.
uint64_t count(DB* db, uint64_t thread) {
  uint64_t number = 0;
  std::string value;
  while (db->Get(ReadOptions(), key_of(number * kThreads + thread), &value)
             .ok()) {
    CHECK(value == value_of(number * kThreads + thread, 300));
    ++number;
  }
  return number;
}

}  // namespace

int append(const std::string& uri, bool synced) {
  std::shared_ptr<Env> guard;
  const std::unique_ptr<DB> db = open(uri, &guard);
  WriteOptions how;
  how.sync = synced;
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint64_t number = count(db.get(), thread);; ++number) {
        const uint64_t key = number * kThreads + thread;
        CHECK_OK(db->Put(how, key_of(key), value_of(key, 300)));
        char line[32];
        const int len = snprintf(line, sizeof line, "%llu\n",
                                 static_cast<unsigned long long>(key));
        // At once, and as one.
        CHECK(::write(1, line, static_cast<size_t>(len)) == len);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

// The last key that each thread has acknowledged, with commas between them. 3: one is missing.
int verify(const std::string& uri, const std::string& acknowledged) {
  std::shared_ptr<Env> guard;
  const std::unique_ptr<DB> db = open(uri, &guard);
  CHECK_OK(db->VerifyChecksum());
  std::istringstream keys(acknowledged);
  bool all = true;
  for (std::string key; std::getline(keys, key, ',');) {
    const uint64_t last = std::stoull(key);
    const uint64_t there = count(db.get(), last % kThreads);
    printf("%s: %llu there\n", key.c_str(),
           static_cast<unsigned long long>(there));
    all &= there > last / kThreads;
  }
  return all ? 0 : 3;
}
