#include "volume.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

namespace dure_rocksdb {
namespace {

// How long an open waits for a volume that is in use: the kernel lets go of the files of a process
// that was killed a little after the process has ended.
constexpr std::chrono::milliseconds kPatience{1000};
constexpr std::chrono::milliseconds kPause{5};
// Reads of one handle that the device is busy with; more are submitted as these end.
constexpr uint32_t kDepth = 64;

int open_patiently(const Uri& uri, dure_volume** handle) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const int result =
        dure_volume_open(uri.image.c_str(), uri.options.c_str(), handle);
    if (result != -EBUSY || std::chrono::steady_clock::now() > end) {
      return result;
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

// All volumes of the process. Never destroyed: a static object of the program may give up its
// volume after all static objects here.
class Table {
 public:
  static Table& get() {
    static Table* table = new Table;
    return *table;
  }

  std::shared_ptr<Volume> open(const Uri& uri, std::string* error);
  void remove(Volume* volume);
  void close_all();
  // Whether this process has a volume open.
  bool owns_any() const {
    return owner_.load(std::memory_order_relaxed) == ::getpid();
  }

 private:
  bool is_child() const {
    const pid_t owner = owner_.load(std::memory_order_relaxed);
    return owner != 0 && owner != ::getpid();
  }

  // The process that has volumes open, 0: none has. Read before the mutex, which a thread of the
  // parent may have held at the fork.
  std::atomic<pid_t> owner_{0};
  std::mutex mutex_;
  std::map<Medium, std::weak_ptr<Volume>> by_medium_;  // [mutex_]
  std::set<Volume*> open_;                             // [mutex_]
  bool exiting_ = false;                               // [mutex_]
};

std::shared_ptr<Volume> Table::open(const Uri& uri, std::string* error) {
  if (is_child()) {
    *error =
        "this process was forked from one that has volumes open: open it before";
    return nullptr;
  }
  std::lock_guard<std::mutex> guard(mutex_);
  if (exiting_) {
    *error = "the process exits";
    return nullptr;
  }
  std::weak_ptr<Volume>& entry = by_medium_[uri.medium];
  if (std::shared_ptr<Volume> volume = entry.lock()) {
    return volume;
  }
  dure_volume* handle = nullptr;
  if (open_patiently(uri, &handle) != 0) {
    *error = dure_last_error();
    by_medium_.erase(uri.medium);
    return nullptr;
  }
  std::shared_ptr<Volume> volume(new Volume(uri.medium, handle));
  entry = volume;
  open_.insert(volume.get());
  owner_.store(::getpid(), std::memory_order_relaxed);
  return volume;
}

void Table::remove(Volume* volume) {
  if (is_child()) {
    return;
  }
  std::lock_guard<std::mutex> guard(mutex_);
  open_.erase(volume);
  const auto entry = by_medium_.find(volume->medium_);
  // Another one may have been opened when this one was closed.
  if (entry != by_medium_.end() && entry->second.expired()) {
    by_medium_.erase(entry);
  }
  if (open_.empty()) {
    owner_.store(0, std::memory_order_relaxed);
  }
}

void Table::close_all() {
  std::lock_guard<std::mutex> guard(mutex_);
  exiting_ = true;
  for (Volume* volume : open_) {
    volume->close();
  }
}

namespace {

// Closes what is left when the process exits: behind the static objects of the program, which may
// still write, and before those of librocksdb, because this library is loaded between the two.
struct Closer {
  ~Closer() {
    if (Table::get().owns_any()) {
      // The values of the exiting thread are gone already, and dure has some: a thread of its own.
      std::thread([] { Table::get().close_all(); }).join();
    }
  }
} closer;

}  // namespace

std::shared_ptr<Volume> Volume::open(const Uri& uri, std::string* error) {
  return Table::get().open(uri, error);
}

Volume::~Volume() {
  for (Slot& slot : slots_) {
    dure_calls_close(slot.calls.load(std::memory_order_relaxed));
  }
  close();
  Table::get().remove(this);
}

void Volume::close() {
  std::lock_guard<std::mutex> guard(mutex_);
  if (handle_ == nullptr) {
    return;
  }
  if (dure_volume_close(handle_) != 0) {
    // There is no caller to tell. What was synced is durable already.
    fprintf(stderr, "dure: closing a volume: %s\n", dure_last_error());
  }
  handle_ = nullptr;
}

int Volume::session(const std::string& folder, dure_session** session) {
  std::lock_guard<std::mutex> guard(mutex_);
  dure_session* outer = nullptr;
  int result = dure_session_open_process(handle_, &outer);
  if (result != 0 || folder == "/") {
    *session = outer;
    return result;
  }
  result = dure_session_with_root(outer, folder.c_str(), session);
  if (result == -ENOENT &&
      (result = dure_mkdir(outer, folder.c_str(), 0755)) == 0) {
    result = dure_session_with_root(outer, folder.c_str(), session);
  }
  dure_session_close(outer);
  return result;
}

int Volume::statfs(dure_statfs* found) {
  std::lock_guard<std::mutex> guard(mutex_);
  return dure_volume_statfs(handle_, found);
}

size_t Volume::own_slot() {
  static std::atomic<size_t> threads{0};
  // Relaxed: it only spreads threads.
  thread_local const size_t own =
      threads.fetch_add(1, std::memory_order_relaxed);
  return own % kSlots;
}

int Volume::take_calls(dure_calls** calls) {
  // Acquire: pairs with the release of give_calls.
  *calls =
      slots_[own_slot()].calls.exchange(nullptr, std::memory_order_acquire);
  if (*calls != nullptr) {
    return 0;
  }
  std::lock_guard<std::mutex> guard(mutex_);
  return dure_calls_open(handle_, kDepth, calls);
}

void Volume::give_calls(dure_calls* calls) {
  // Release: the next thread sees a handle with nothing under way.
  dure_calls_close(
      slots_[own_slot()].calls.exchange(calls, std::memory_order_acq_rel));
}

bool Volume::lock(uint64_t ino) {
  std::lock_guard<std::mutex> guard(mutex_);
  return locked_.insert(ino).second;
}

void Volume::unlock(uint64_t ino) {
  std::lock_guard<std::mutex> guard(mutex_);
  locked_.erase(ino);
}

}  // namespace dure_rocksdb
