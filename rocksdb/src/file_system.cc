#include "file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "status.h"
#include "writing.h"

namespace dure_rocksdb {

using rocksdb::DBOptions;
using rocksdb::FileLock;
using rocksdb::FileOptions;
using rocksdb::FSDirectory;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSRandomRWFile;
using rocksdb::FSSequentialFile;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

namespace {

// Refuses what dure has not: the memory of a file.
IOStatus mapped(bool wanted, const std::string& path) {
  if (wanted) {
    return IOStatus::NotSupported(
        path, "files of dure cannot be mapped: allow_mmap_reads and "
              "allow_mmap_writes have to be false");
  }
  return IOStatus::OK();
}

class Directory : public FSDirectory {
 public:
  explicit Directory(std::unique_ptr<Open> open) : open_(std::move(open)) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return judge(dure_fsync(open_->file()), "syncing the directory",
                 open_->path());
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    open_.reset();
    return IOStatus::OK();
  }

 private:
  std::unique_ptr<Open> open_;  // null once closed
};

// A lock of this process. The file stays open, so that no other one gets its number.
struct Lock : FileLock {
  Lock(std::unique_ptr<Open> file, uint64_t number)
      : open(std::move(file)), ino(number) {}
  const std::unique_ptr<Open> open;
  const uint64_t ino;
};

}  // namespace

std::unique_ptr<FileSystem> FileSystem::make(const std::string& uri,
                                             std::string* error) {
  Uri parsed;
  *error = parse(uri, &parsed);
  if (!error->empty()) {
    return nullptr;
  }
  std::shared_ptr<Volume> volume = Volume::open(parsed, error);
  if (volume == nullptr) {
    return nullptr;
  }
  dure_session* session = nullptr;
  if (volume->session(parsed.folder, &session) != 0) {
    *error = dure_last_error();
    return nullptr;
  }
  return std::unique_ptr<FileSystem>(
      new FileSystem(std::move(volume), session));
}

FileSystem::~FileSystem() { dure_session_close(session_); }

IOStatus FileSystem::open(const std::string& path, int flags,
                          const char* during,
                          std::unique_ptr<Open>* made) const {
  dure_file* file = nullptr;
  const int opened = dure_open(session_, path.c_str(), flags, 0644, &file);
  if (opened == 0) {
    *made = std::make_unique<Open>(volume_, path, file);
  }
  return judge(opened, during, path);
}

IOStatus FileSystem::stat(const std::string& path, const char* during,
                          struct dure_stat* found) const {
  return judge(dure_stat(session_, path.c_str(), found), during, path);
}

IOStatus FileSystem::NewSequentialFile(const std::string& path,
                                       const FileOptions& options,
                                       Made<FSSequentialFile> made,
                                       IODebugContext*) {
  made->reset();
  std::unique_ptr<Open> opened;
  const IOStatus status =
      open(path, O_RDONLY, "opening for reading in order", &opened);
  if (status.ok()) {
    *made = std::make_unique<SequentialFile>(std::move(opened),
                                             options.use_direct_reads);
  }
  return status;
}

IOStatus FileSystem::NewRandomAccessFile(const std::string& path,
                                         const FileOptions& options,
                                         Made<FSRandomAccessFile> made,
                                         IODebugContext*) {
  made->reset();
  std::unique_ptr<Open> opened;
  IOStatus status = mapped(options.use_mmap_reads, path);
  if (status.ok()) {
    status = open(path, O_RDONLY, "opening for reading", &opened);
  }
  if (status.ok()) {
    *made = std::make_unique<RandomAccessFile>(std::move(opened),
                                               options.use_direct_reads);
  }
  return status;
}

IOStatus FileSystem::open_writable(const std::string& path, int flags,
                                   const FileOptions& options,
                                   Made<FSWritableFile> made) const {
  made->reset();
  std::unique_ptr<Open> opened;
  IOStatus status = mapped(options.use_mmap_writes, path);
  if (status.ok()) {
    status = open(path, O_WRONLY | O_CREAT | flags, "opening for writing",
                  &opened);
  }
  struct dure_stat found = {};
  if (status.ok() && (flags & O_TRUNC) == 0) {
    status = judge(dure_fstat(opened->file(), &found), "opening", path);
  }
  if (status.ok()) {
    *made =
        std::make_unique<WritableFile>(std::move(opened), found.size, options);
  }
  return status;
}

IOStatus FileSystem::NewWritableFile(const std::string& path,
                                     const FileOptions& options,
                                     Made<FSWritableFile> made,
                                     IODebugContext*) {
  return open_writable(path, O_TRUNC, options, made);
}

IOStatus FileSystem::ReopenWritableFile(const std::string& path,
                                        const FileOptions& options,
                                        Made<FSWritableFile> made,
                                        IODebugContext*) {
  return open_writable(path, 0, options, made);
}

IOStatus FileSystem::NewRandomRWFile(const std::string& path,
                                     const FileOptions&,
                                     Made<FSRandomRWFile> made,
                                     IODebugContext*) {
  made->reset();
  std::unique_ptr<Open> opened;
  const IOStatus status =
      open(path, O_RDWR, "opening for reading and writing", &opened);
  if (status.ok()) {
    *made = std::make_unique<RandomRWFile>(std::move(opened));
  }
  return status;
}

IOStatus FileSystem::NewDirectory(const std::string& path, const IOOptions&,
                                  Made<FSDirectory> made, IODebugContext*) {
  made->reset();
  std::unique_ptr<Open> opened;
  const IOStatus status =
      open(path, O_RDONLY | O_DIRECTORY, "opening the directory", &opened);
  if (status.ok()) {
    *made = std::make_unique<Directory>(std::move(opened));
  }
  return status;
}

IOStatus FileSystem::FileExists(const std::string& path, const IOOptions&,
                                IODebugContext*) {
  const int result = dure_access(session_, path.c_str(), F_OK);
  switch (-result) {
    case EACCES:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOENT:
    case ENOTDIR:
      return IOStatus::NotFound();
    default:
      return judge(result, "looking for", path);
  }
}

IOStatus FileSystem::GetChildren(const std::string& path,
                                 const IOOptions& options,
                                 std::vector<std::string>* names,
                                 IODebugContext*) {
  names->clear();
  dure_dir* directory = nullptr;
  int result = dure_opendir(session_, path.c_str(), &directory);
  if (result == -EACCES || result == -ENOENT || result == -ENOTDIR) {
    return IOStatus::NotFound();
  }
  dure_dirent entry;
  while (result >= 0 && (result = dure_readdir(directory, &entry)) == 1) {
    if (!(options.do_not_recurse && entry.kind == DT_DIR)) {
      names->push_back(entry.name);
    }
  }
  const IOStatus status = judge(result, "listing", path);
  dure_closedir(directory);
  return status;
}

IOStatus FileSystem::DeleteFile(const std::string& path, const IOOptions&,
                                IODebugContext*) {
  return judge(dure_unlink(session_, path.c_str()), "removing", path);
}

IOStatus FileSystem::Truncate(const std::string& path, size_t size,
                              const IOOptions&, IODebugContext*) {
  return judge(
      dure_truncate(session_, path.c_str(), static_cast<int64_t>(size)),
      "truncating", path);
}

IOStatus FileSystem::CreateDir(const std::string& path, const IOOptions&,
                               IODebugContext*) {
  return judge(dure_mkdir(session_, path.c_str(), 0755),
               "making the directory", path);
}

IOStatus FileSystem::CreateDirIfMissing(const std::string& path,
                                        const IOOptions& options,
                                        IODebugContext* debug) {
  const int made = dure_mkdir(session_, path.c_str(), 0755);
  if (made != -EEXIST) {
    return judge(made, "making the directory", path);
  }
  bool is_directory = false;
  const IOStatus status = IsDirectory(path, options, &is_directory, debug);
  if (status.ok() && !is_directory) {
    return IOStatus::IOError("`" + path + "' exists but is not a directory");
  }
  return status;
}

IOStatus FileSystem::DeleteDir(const std::string& path, const IOOptions&,
                               IODebugContext*) {
  return judge(dure_rmdir(session_, path.c_str()), "removing the directory",
               path);
}

IOStatus FileSystem::GetFileSize(const std::string& path, const IOOptions&,
                                 uint64_t* size, IODebugContext*) {
  struct dure_stat found = {};
  const IOStatus status = stat(path, "asking for the size", &found);
  *size = found.size;
  return status;
}

IOStatus FileSystem::GetFileModificationTime(const std::string& path,
                                             const IOOptions&,
                                             uint64_t* seconds,
                                             IODebugContext*) {
  struct dure_stat found = {};
  const IOStatus status = stat(path, "asking for the time", &found);
  *seconds = static_cast<uint64_t>(found.mtime.sec);
  return status;
}

IOStatus FileSystem::RenameFile(const std::string& from, const std::string& to,
                                const IOOptions&, IODebugContext*) {
  return judge(dure_rename(session_, from.c_str(), to.c_str(), 0), "renaming",
               from + " to " + to);
}

IOStatus FileSystem::LinkFile(const std::string& from, const std::string& to,
                              const IOOptions&, IODebugContext*) {
  return judge(dure_link(session_, from.c_str(), to.c_str()), "linking",
               from + " to " + to);
}

IOStatus FileSystem::NumFileLinks(const std::string& path, const IOOptions&,
                                  uint64_t* count, IODebugContext*) {
  struct dure_stat found = {};
  const IOStatus status = stat(path, "asking for links", &found);
  *count = found.nlink;
  return status;
}

IOStatus FileSystem::AreFilesSame(const std::string& first,
                                  const std::string& second, const IOOptions&,
                                  bool* same, IODebugContext*) {
  struct dure_stat one = {}, other = {};
  IOStatus status = stat(first, "comparing", &one);
  if (status.ok()) {
    status = stat(second, "comparing", &other);
  }
  *same = status.ok() && one.ino == other.ino;
  return status;
}

IOStatus FileSystem::LockFile(const std::string& path, const IOOptions&,
                              FileLock** lock, IODebugContext*) {
  *lock = nullptr;
  std::unique_ptr<Open> opened;
  struct dure_stat found = {};
  IOStatus status = open(path, O_RDWR | O_CREAT, "opening a lock", &opened);
  if (status.ok()) {
    status = judge(dure_fstat(opened->file(), &found), "locking", path);
  }
  if (!status.ok()) {
    return status;
  }
  if (!volume_->lock(found.ino)) {
    return IOStatus::IOError("lock hold by current process: " + path);
  }
  *lock = new Lock(std::move(opened), found.ino);
  return status;
}

IOStatus FileSystem::UnlockFile(FileLock* lock, const IOOptions&,
                                IODebugContext*) {
  const std::unique_ptr<Lock> own(static_cast<Lock*>(lock));
  own->open->volume()->unlock(own->ino);
  return IOStatus::OK();
}

IOStatus FileSystem::GetTestDirectory(const IOOptions& options,
                                      std::string* path,
                                      IODebugContext* debug) {
  const char* chosen = getenv("TEST_TMPDIR");
  *path = chosen != nullptr && *chosen != '\0'
              ? chosen
              : "/rocksdbtest-" + std::to_string(geteuid());
  return CreateDirIfMissing(*path, options, debug);
}

IOStatus FileSystem::GetAbsolutePath(const std::string& path, const IOOptions&,
                                     std::string* absolute, IODebugContext*) {
  // There is no current directory: paths begin at the folder of the URI.
  *absolute = path.empty() || path[0] != '/' ? "/" + path : path;
  return IOStatus::OK();
}

IOStatus FileSystem::GetFreeSpace(const std::string& path, const IOOptions&,
                                  uint64_t* bytes, IODebugContext*) {
  dure_statfs found = {};
  struct dure_stat there = {};
  IOStatus status = stat(path, "asking for room", &there);
  if (status.ok()) {
    status = judge(volume_->statfs(&found), "asking for room", path);
  }
  *bytes = found.blocks_available * found.block_bytes;
  return status;
}

IOStatus FileSystem::IsDirectory(const std::string& path, const IOOptions&,
                                 bool* is_directory, IODebugContext*) {
  struct dure_stat found = {};
  const IOStatus status = stat(path, "asking for the kind", &found);
  if (is_directory != nullptr) {
    *is_directory = S_ISDIR(found.mode);
  }
  return status;
}

IOStatus FileSystem::Poll(std::vector<void*>& handles, size_t least) {
  return poll_reads(handles, least);
}

IOStatus FileSystem::AbortIO(std::vector<void*>& handles) {
  return abort_reads(handles);
}

FileOptions FileSystem::OptimizeForLogWrite(const FileOptions& options,
                                            const DBOptions& database) const {
  FileOptions optimized =
      rocksdb::FileSystem::OptimizeForLogWrite(options, database);
  // As RocksDB does elsewhere: logs grow by less than a page.
  optimized.use_direct_writes = false;
  return optimized;
}

FileOptions FileSystem::OptimizeForManifestWrite(
    const FileOptions& options) const {
  FileOptions optimized =
      rocksdb::FileSystem::OptimizeForManifestWrite(options);
  optimized.use_direct_writes = false;
  return optimized;
}

}  // namespace dure_rocksdb
