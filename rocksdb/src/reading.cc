#include "reading.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "status.h"

namespace dure_rocksdb {

using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOHandleDeleter;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

constexpr uint64_t kPage = 4096;

// Puts the result of a submitted read into its request.
void answer(FSReadRequest* request, const std::string& path, int64_t result) {
  if (result < 0) {
    request->result = Slice(request->scratch, 0);
    request->status =
        status_of(result, "reading at " + std::to_string(request->offset), path,
                  strerror(static_cast<int>(-result)));
  } else {
    request->result = Slice(request->scratch, static_cast<size_t>(result));
    request->status = IOStatus::OK();
  }
}

// A read that is under way, or done.
struct UnderWay {
  std::shared_ptr<Volume> volume;
  std::string path;
  FSReadRequest request;
  std::function<void(const FSReadRequest&, void*)> callback;
  void* argument;
  dure_calls* calls;  // null: it was answered

  ~UnderWay() { dure_calls_close(calls); }

  // Calls back, once.
  void finish(int64_t result) {
    volume->give_calls(calls);
    calls = nullptr;
    answer(&request, path, result);
    callback(request, argument);
  }
};

}  // namespace

IOStatus Open::read(uint64_t offset, size_t n, Slice* result, char* scratch,
                    bool direct) const {
  const ssize_t got =
      dure_pread(file_, scratch, n, static_cast<int64_t>(offset));
  if (got < 0) {
    *result = Slice(scratch, 0);
    return judge(got, "reading", path_);
  }
  *result = Slice(scratch, static_cast<size_t>(got));
  if (direct) {
    // Only a hint.
    drop(offset, n).PermitUncheckedError();
  }
  return IOStatus::OK();
}

IOStatus Open::write(uint64_t offset, const Slice& data) const {
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t wrote =
        dure_pwrite(file_, data.data() + done, data.size() - done,
                    static_cast<int64_t>(offset + done));
    if (wrote < 0) {
      return judge(wrote, "writing", path_);
    }
    // Less than all, if there is no room for the rest: the next call says so.
    done += static_cast<size_t>(wrote);
  }
  return IOStatus::OK();
}

IOStatus Open::drop(uint64_t offset, uint64_t length) const {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  const uint64_t begin = std::min(offset, kMost) / kPage * kPage;
  const uint64_t bytes = length == 0 || length > kMost ? 0 : offset - begin + length;
  const uint64_t pages = (bytes + kPage - 1) / kPage;
  return judge(dure_fadvise(file_, static_cast<int64_t>(begin),
                            static_cast<int64_t>(pages * kPage),
                            POSIX_FADV_DONTNEED),
               "dropping pages", path_);
}

IOStatus SequentialFile::Read(size_t n, const IOOptions&, Slice* result,
                              char* scratch, IODebugContext*) {
  const IOStatus status = open_->read(position_, n, result, scratch, direct_);
  position_ += result->size();
  return status;
}

IOStatus SequentialFile::Skip(uint64_t n) {
  position_ += n;
  return IOStatus::OK();
}

IOStatus SequentialFile::PositionedRead(uint64_t offset, size_t n,
                                        const IOOptions&, Slice* result,
                                        char* scratch, IODebugContext*) {
  return open_->read(offset, n, result, scratch, direct_);
}

IOStatus SequentialFile::InvalidateCache(size_t offset, size_t length) {
  return open_->drop(offset, length);
}

IOStatus RandomAccessFile::Read(uint64_t offset, size_t n, const IOOptions&,
                                Slice* result, char* scratch,
                                IODebugContext*) const {
  return open_->read(offset, n, result, scratch, direct_);
}

IOStatus RandomAccessFile::MultiRead(FSReadRequest* requests, size_t count,
                                     const IOOptions& options,
                                     IODebugContext* debug) {
  dure_calls* calls = nullptr;
  if (count < 2) {
    return FSRandomAccessFile::MultiRead(requests, count, options, debug);
  }
  IOStatus status =
      judge(open_->volume()->take_calls(&calls), "reading", open_->path());
  if (!status.ok()) {
    return status;
  }
  size_t waiting = 0;
  for (size_t i = 0; i < count; ++i) {
    FSReadRequest& request = requests[i];
    const int began = dure_submit_read(calls, open_->file(), request.scratch,
                                       request.len,
                                       static_cast<int64_t>(request.offset), i);
    if (began < 0) {
      answer(&request, open_->path(), began);
    } else {
      ++waiting;
    }
  }
  dure_done done{};
  while (waiting > 0 && dure_reap(calls, &done) == 1) {
    answer(&requests[done.token], open_->path(), done.result);
    --waiting;
  }
  if (waiting > 0) {
    // The volume has failed: no buffer may be written once this has returned.
    status = judge(-EIO, "reading", open_->path());
    dure_calls_close(calls);
    return status;
  }
  open_->volume()->give_calls(calls);
  for (size_t i = 0; direct_ && i < count; ++i) {
    open_->drop(requests[i].offset, requests[i].len).PermitUncheckedError();
  }
  return IOStatus::OK();
}

IOStatus RandomAccessFile::ReadAsync(
    FSReadRequest& request, const IOOptions&,
    std::function<void(const FSReadRequest&, void*)> callback, void* argument,
    void** handle, IOHandleDeleter* deleter, IODebugContext*) {
  *handle = nullptr;
  auto read = std::make_unique<UnderWay>();
  read->volume = open_->volume();
  read->path = open_->path();
  read->request.offset = request.offset;
  read->request.len = request.len;
  read->request.scratch = request.scratch;
  read->callback = std::move(callback);
  read->argument = argument;
  IOStatus status = judge(read->volume->take_calls(&read->calls), "reading",
                          open_->path());
  if (!status.ok()) {
    return status;
  }
  status = judge(
      dure_submit_read(read->calls, open_->file(), request.scratch, request.len,
                       static_cast<int64_t>(request.offset), 0),
      "reading", open_->path());
  if (!status.ok()) {
    return status;
  }
  // What is in memory was read at once.
  dure_done done{};
  if (dure_try_reap(read->calls, &done) == 1) {
    read->finish(done.result);
    return IOStatus::OK();
  }
  *handle = read.release();
  *deleter = [](void* deleted) { delete static_cast<UnderWay*>(deleted); };
  return IOStatus::OK();
}

IOStatus RandomAccessFile::Prefetch(uint64_t offset, size_t n,
                                    const IOOptions&, IODebugContext*) {
  if (direct_) {
    return IOStatus::NotSupported("Prefetch with direct I/O");
  }
  return judge(dure_fadvise(open_->file(), static_cast<int64_t>(offset),
                            static_cast<int64_t>(n), POSIX_FADV_WILLNEED),
               "reading ahead", open_->path());
}

void RandomAccessFile::Hint(AccessPattern pattern) {
  const int advice = pattern == kWillNeed   ? POSIX_FADV_WILLNEED
                     : pattern == kWontNeed ? POSIX_FADV_DONTNEED
                                            : POSIX_FADV_NORMAL;
  if (!direct_) {
    dure_fadvise(open_->file(), 0, 0, advice);
  }
}

IOStatus RandomAccessFile::InvalidateCache(size_t offset, size_t length) {
  return open_->drop(offset, length);
}

IOStatus poll_reads(const std::vector<void*>& handles, size_t least) {
  for (size_t i = 0; i < std::min(least, handles.size()); ++i) {
    auto* read = static_cast<UnderWay*>(handles[i]);
    if (read == nullptr || read->calls == nullptr) {
      continue;
    }
    dure_done done{};
    const int reaped = dure_reap(read->calls, &done);
    // It is the only one of these calls; if not even an answer can be had, that is the answer.
    read->finish(reaped == 1 ? done.result : -EIO);
  }
  return IOStatus::OK();
}

IOStatus abort_reads(const std::vector<void*>& handles) {
  for (void* handle : handles) {
    auto* read = static_cast<UnderWay*>(handle);
    if (read == nullptr || read->calls == nullptr) {
      continue;
    }
    dure_calls_close(read->calls);
    read->calls = nullptr;
    // As the file system of RocksDB does, against the comment of its header: callers free there
    // what belongs to the read.
    FSReadRequest aborted;
    aborted.status = IOStatus::Aborted();
    read->callback(aborted, read->argument);
  }
  return IOStatus::OK();
}

}  // namespace dure_rocksdb
