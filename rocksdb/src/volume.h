// The volumes that this process has open for RocksDB.
//
// Problem. A volume is open once in a process, and a program may name it by several URIs: of a
// database and of its backup. Structure. A table by medium; file systems and open files each hold a
// Volume, and the last one closes it. What a program has not given up when it exits is closed then.
//
// Invariants. The handle of a volume is used under its mutex only, so that it can be closed while
// other threads are in calls on files, which dure allows. Nothing is done in a child of fork while
// its parent has volumes open. On a crash of the process volumes stay as they are; the next open
// recovers them, with all that was synced.
#pragma once

#include <dure.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "uri.h"

namespace dure_rocksdb {

class Volume {
 public:
  // Opens the volume, unless it is open; options count for the one that opens it. Null: *error says
  // why.
  static std::shared_ptr<Volume> open(const Uri& uri, std::string* error);

  ~Volume();
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  // A caller whose root is `folder`, which is made if only its last name is missing. 0 or -errno.
  int session(const std::string& folder, dure_session** session);

  int statfs(dure_statfs* found);

  // A handle for many reads at once, of which the caller reaps all before it gives the handle back.
  int take_calls(dure_calls** calls);
  void give_calls(dure_calls* calls);

  // Whether the caller has now the lock of the file with this number, in this process.
  bool lock(uint64_t ino);
  void unlock(uint64_t ino);

 private:
  friend class Table;

  Volume(const Medium& medium, dure_volume* handle)
      : medium_(medium), handle_(handle) {}
  // Makes everything durable, and gives up the medium. Later changes fail.
  void close();

  // Handles that are not in use. Threads differ in the first one that they look at.
  struct alignas(64) Slot {
    std::atomic<dure_calls*> calls{nullptr};
  };
  static constexpr size_t kSlots = 32;
  static size_t own_slot();

  const Medium medium_;
  std::mutex mutex_;
  dure_volume* handle_;           // [mutex_] null once closed
  std::set<uint64_t> locked_;     // [mutex_]
  std::array<Slot, kSlots> slots_;
};

}  // namespace dure_rocksdb
