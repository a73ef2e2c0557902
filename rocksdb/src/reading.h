// Files that are read: in order, anywhere, many places at once, and without waiting.
//
// Problem. A MultiGet reads several blocks of a table, and an iterator wants its next window while
// the caller works on this one: one read after the other would leave the device idle. Structure.
// Requests go to dure_submit_read, and dure_reap waits; each ReadAsync has a handle of calls of its
// own, so that any thread may poll it. Invariants. A buffer is not written after its request was
// answered, polled, aborted or deleted. On a crash: nothing is kept.
#pragma once

#include <dure.h>
#include <rocksdb/file_system.h>

#include <memory>
#include <string>
#include <vector>

#include "volume.h"

namespace dure_rocksdb {

// An open file, its name and its volume.
class Open {
 public:
  Open(std::shared_ptr<Volume> volume, std::string path, dure_file* file)
      : volume_(std::move(volume)), path_(std::move(path)), file_(file) {}
  ~Open() { dure_close(file_); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

  dure_file* file() const { return file_; }
  const std::string& path() const { return path_; }
  const std::shared_ptr<Volume>& volume() const { return volume_; }

  // Reads `n` bytes, fewer at the end of the file. What was read with direct I/O does not stay in
  // memory.
  rocksdb::IOStatus read(uint64_t offset, size_t n, rocksdb::Slice* result,
                         char* scratch, bool direct) const;
  // Writes all of it, or fails.
  rocksdb::IOStatus write(uint64_t offset, const rocksdb::Slice& data) const;
  // Drops what is in memory and written back; length 0: to the end.
  rocksdb::IOStatus drop(uint64_t offset, uint64_t length) const;

 private:
  const std::shared_ptr<Volume> volume_;
  const std::string path_;
  dure_file* const file_;
};

class SequentialFile : public rocksdb::FSSequentialFile {
 public:
  SequentialFile(std::unique_ptr<Open> open, bool direct)
      : open_(std::move(open)), direct_(direct) {}

  rocksdb::IOStatus Read(size_t n, const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Skip(uint64_t n) override;
  bool use_direct_io() const override { return direct_; }
  rocksdb::IOStatus PositionedRead(uint64_t offset, size_t n,
                                   const rocksdb::IOOptions& options,
                                   rocksdb::Slice* result, char* scratch,
                                   rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus InvalidateCache(size_t offset, size_t length) override;

 private:
  const std::unique_ptr<Open> open_;
  const bool direct_;
  uint64_t position_ = 0;
};

class RandomAccessFile : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(std::unique_ptr<Open> open, bool direct)
      : open_(std::move(open)), direct_(direct) {}

  rocksdb::IOStatus Read(uint64_t offset, size_t n,
                         const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* debug) const override;
  rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count,
                              const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReadAsync(
      rocksdb::FSReadRequest& request, const rocksdb::IOOptions& options,
      std::function<void(const rocksdb::FSReadRequest&, void*)> callback,
      void* argument, void** handle, rocksdb::IOHandleDeleter* deleter,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Prefetch(uint64_t offset, size_t n,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;
  void Hint(AccessPattern pattern) override;
  bool use_direct_io() const override { return direct_; }
  rocksdb::IOStatus InvalidateCache(size_t offset, size_t length) override;

 private:
  const std::unique_ptr<Open> open_;
  const bool direct_;
};

// Waits for the first `least` of these reads, and calls back.
rocksdb::IOStatus poll_reads(const std::vector<void*>& handles, size_t least);
// Gives up all of these reads.
rocksdb::IOStatus abort_reads(const std::vector<void*>& handles);

}  // namespace dure_rocksdb
