#include "writing.h"

#include "status.h"

namespace dure_rocksdb {

using rocksdb::DataVerificationInfo;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

WritableFile::~WritableFile() {
  Close(IOOptions(), nullptr).PermitUncheckedError();
}

IOStatus WritableFile::Append(const Slice& data, const IOOptions& options,
                              IODebugContext* debug) {
  return PositionedAppend(data, size_.load(std::memory_order_relaxed), options,
                          debug);
}

IOStatus WritableFile::PositionedAppend(const Slice& data, uint64_t offset,
                                        const IOOptions&, IODebugContext*) {
  const IOStatus status = open_->write(offset, data);
  if (status.ok()) {
    // Relaxed: a reader of the size gets one that was true a moment ago.
    size_.store(offset + data.size(), std::memory_order_relaxed);
  } else {
    cut_at_close_ = true;
  }
  return status;
}

IOStatus WritableFile::PositionedAppend(const Slice& data, uint64_t offset,
                                        const IOOptions& options,
                                        const DataVerificationInfo&,
                                        IODebugContext* debug) {
  return PositionedAppend(data, offset, options, debug);
}

IOStatus WritableFile::Truncate(uint64_t size, const IOOptions&,
                                IODebugContext*) {
  const IOStatus status =
      judge(dure_ftruncate(open_->file(), static_cast<int64_t>(size)),
            "truncating", open_->path());
  if (status.ok()) {
    size_.store(size, std::memory_order_relaxed);
  }
  return status;
}

IOStatus WritableFile::Close(const IOOptions& options, IODebugContext* debug) {
  IOStatus status;
  if (open_ != nullptr && cut_at_close_) {
    // What an append has written that failed. If a crash comes first it stays until the file is
    // removed.
    status =
        Truncate(size_.load(std::memory_order_relaxed), options, debug);
  }
  open_.reset();
  return status;
}

IOStatus WritableFile::Flush(const IOOptions&, IODebugContext*) {
  return IOStatus::OK();
}

IOStatus WritableFile::synced(int result) {
  const IOStatus status = judge(result, "syncing", open_->path());
  if (status.ok() && direct_) {
    // Only a hint.
    open_->drop(0, 0).PermitUncheckedError();
  }
  return status;
}

IOStatus WritableFile::Sync(const IOOptions&, IODebugContext*) {
  return synced(dure_fdatasync(open_->file()));
}

IOStatus WritableFile::Fsync(const IOOptions&, IODebugContext*) {
  return synced(dure_fsync(open_->file()));
}

uint64_t WritableFile::GetFileSize(const IOOptions&, IODebugContext*) {
  return size_.load(std::memory_order_relaxed);
}

IOStatus WritableFile::InvalidateCache(size_t offset, size_t length) {
  return open_->drop(offset, length);
}

IOStatus RandomRWFile::Write(uint64_t offset, const Slice& data,
                             const IOOptions&, IODebugContext*) {
  return open_->write(offset, data);
}

IOStatus RandomRWFile::Read(uint64_t offset, size_t n, const IOOptions&,
                            Slice* result, char* scratch,
                            IODebugContext*) const {
  return open_->read(offset, n, result, scratch, false);
}

IOStatus RandomRWFile::Flush(const IOOptions&, IODebugContext*) {
  return IOStatus::OK();
}

IOStatus RandomRWFile::Sync(const IOOptions&, IODebugContext*) {
  return judge(dure_fdatasync(open_->file()), "syncing", open_->path());
}

IOStatus RandomRWFile::Fsync(const IOOptions&, IODebugContext*) {
  return judge(dure_fsync(open_->file()), "syncing", open_->path());
}

IOStatus RandomRWFile::Close(const IOOptions&, IODebugContext*) {
  open_.reset();
  return IOStatus::OK();
}

}  // namespace dure_rocksdb
