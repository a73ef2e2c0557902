// Files that are written: at the end, or anywhere.
//
// Problem. RocksDB appends to logs and tables, and relies on Sync. Structure. An append is a write
// at the end that this object knows, so that one that found no room leaves nothing behind that
// counts. Nothing is allocated ahead, whatever RocksDB asks for (it looks at no result): pages get
// their places when they are written back, next to each other, and blocks that wait for a log cost
// an fsync a tenth of its time. Invariants. What Append got is in the memory of the volume when it
// returns, and durable when Sync or Fsync do. On a crash, also a kill of the process, whose memory
// that is: what was not synced is lost, if it is younger than "commit=" seconds.
#pragma once

#include <rocksdb/file_system.h>

#include <atomic>
#include <memory>

#include "reading.h"

namespace dure_rocksdb {

class WritableFile : public rocksdb::FSWritableFile {
 public:
  WritableFile(std::unique_ptr<Open> open, uint64_t size,
               const rocksdb::FileOptions& options)
      : FSWritableFile(options),
        open_(std::move(open)),
        size_(size),
        direct_(options.use_direct_writes) {}
  ~WritableFile() override;

  using FSWritableFile::Append;
  using FSWritableFile::PositionedAppend;
  rocksdb::IOStatus Append(const rocksdb::Slice& data,
                           const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     const rocksdb::DataVerificationInfo& sum,
                                     rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Flush(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  bool IsSyncThreadSafe() const override { return true; }
  bool use_direct_io() const override { return direct_; }
  uint64_t GetFileSize(const rocksdb::IOOptions& options,
                       rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus InvalidateCache(size_t offset, size_t length) override;

 private:
  rocksdb::IOStatus synced(int result);

  std::unique_ptr<Open> open_;  // null once closed
  // Written by the one thread that appends, read by any.
  std::atomic<uint64_t> size_;
  const bool direct_;
  bool cut_at_close_ = false;
};

class RandomRWFile : public rocksdb::FSRandomRWFile {
 public:
  explicit RandomRWFile(std::unique_ptr<Open> open) : open_(std::move(open)) {}

  rocksdb::IOStatus Write(uint64_t offset, const rocksdb::Slice& data,
                          const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Read(uint64_t offset, size_t n,
                         const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* debug) const override;
  rocksdb::IOStatus Flush(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;

 private:
  std::unique_ptr<Open> open_;  // null once closed
};

}  // namespace dure_rocksdb
