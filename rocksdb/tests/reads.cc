// Reads of many places at once and without waiting, of a file that is larger than the volume's
// memory.
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"

using namespace rocksdb;

namespace {

constexpr size_t kBlock = 5000;
constexpr size_t kBlocks = 4000;

const IOOptions kNone;

void make(FileSystem* fs) {
  std::unique_ptr<FSWritableFile> file;
  CHECK_OK(fs->NewWritableFile("/blocks", FileOptions(), &file, nullptr));
  for (size_t block = 0; block < kBlocks; ++block) {
    CHECK_OK(file->Append(value_of(block, kBlock), kNone, nullptr));
  }
  CHECK_OK(file->Fsync(kNone, nullptr));
  CHECK_OK(file->Close(kNone, nullptr));
}

// Some blocks at once, in no order; one of them is cut by the end, one is behind it.
void many(FSRandomAccessFile* file, uint64_t seed, size_t count) {
  std::vector<FSReadRequest> requests(count);
  std::vector<std::string> scratch(count, std::string(kBlock, '\0'));
  std::vector<uint64_t> blocks(count);
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = (seed * 7919 + i * 104729) % kBlocks;
    requests[i].offset = blocks[i] * kBlock;
    requests[i].len = kBlock;
    requests[i].scratch = scratch[i].data();
  }
  requests[0].offset = kBlocks * kBlock - 100;
  requests[1].offset = kBlocks * kBlock + 1;
  CHECK_OK(file->MultiRead(requests.data(), count, kNone, nullptr));
  for (size_t i = 0; i < count; ++i) {
    CHECK_OK(requests[i].status);
    const std::string found = requests[i].result.ToString();
    switch (i) {
      case 0: CHECK(found == value_of(kBlocks - 1, kBlock).substr(kBlock - 100)); break;
      case 1: CHECK(found.empty()); break;
      default: CHECK(found == value_of(blocks[i], kBlock)); break;
    }
  }
}

struct Async {
  FSReadRequest request;
  std::string scratch = std::string(kBlock, '\0');
  uint64_t block = 0;
  int answers = 0;
  void* handle = nullptr;
  IOHandleDeleter deleter;
  Status status;
  std::string found;

  void begin(FSRandomAccessFile* file, uint64_t of) {
    block = of;
    request.offset = of * kBlock;
    request.len = kBlock;
    request.scratch = scratch.data();
    const auto answered = [](const FSReadRequest& done, void* own) {
      auto* read = static_cast<Async*>(own);
      ++read->answers;
      read->status = done.status;
      if (done.status.ok()) read->found = done.result.ToString();
    };
    CHECK_OK(file->ReadAsync(request, kNone, answered, this, &handle, &deleter,
                             nullptr));
  }
  bool is_right() const {
    return answers == 1 && status.ok() && found == value_of(block, kBlock);
  }
  ~Async() {
    if (handle != nullptr) deleter(handle);
  }
};

void without_waiting(FileSystem* fs, FSRandomAccessFile* file, uint64_t seed) {
  Async polled[8], aborted[4], left[4];
  uint64_t next = seed;
  const auto block = [&] { return (next += 1009) % kBlocks; };
  for (Async& read : polled) read.begin(file, block());
  for (Async& read : aborted) read.begin(file, block());
  for (Async& read : left) read.begin(file, block());
  std::vector<void*> handles;
  for (Async& read : polled) {
    if (read.handle != nullptr) handles.push_back(read.handle);
  }
  CHECK_OK(fs->Poll(handles, handles.size()));
  // Once more: what was answered is not answered again.
  CHECK_OK(fs->Poll(handles, handles.size()));
  for (const Async& read : polled) CHECK(read.is_right());
  handles.clear();
  for (Async& read : aborted) {
    if (read.handle != nullptr) handles.push_back(read.handle);
  }
  CHECK_OK(fs->AbortIO(handles));
  for (Async& read : aborted) {
    CHECK(read.answers == 1 && (read.status.IsAborted() || read.is_right()));
    // Nothing is written here any more.
    if (read.status.IsAborted()) memset(read.scratch.data(), 'x', kBlock);
  }
  CHECK_OK(fs->Poll(handles, handles.size()));
  for (const Async& read : aborted) {
    CHECK(read.answers == 1);
    CHECK(!read.status.IsAborted() || read.scratch == std::string(kBlock, 'x'));
  }
  // `left` are deleted under way.
}

}  // namespace

int reads(const std::string& uri) {
  const std::shared_ptr<FileSystem> fs = file_system(uri);
  make(fs.get());
  for (const bool direct : {false, true}) {
    FileOptions options;
    options.use_direct_reads = direct;
    std::unique_ptr<FSRandomAccessFile> file;
    CHECK_OK(fs->NewRandomAccessFile("/blocks", options, &file, nullptr));
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (uint64_t round = 0; round < 30; ++round) {
          const uint64_t seed = thread * 1000 + round;
          many(file.get(), seed, 2 + seed % 200);
          without_waiting(fs.get(), file.get(), seed);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  CHECK_OK(fs->DeleteFile("/blocks", kNone, nullptr));
  puts("reads: 4 threads, 240 rounds");
  return 0;
}
