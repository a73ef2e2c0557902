// The file system of a URI: names, folders, locks, and the files of the other sources.
//
// Problem. RocksDB, its tools and its backups reach storage through rocksdb::FileSystem. Structure.
// Each call is a call of dure.h in a session whose root is the folder of the URI. Invariants.
// Errors are of the kinds that RocksDB's file system for POSIX has; the test compares them. A lock
// holds within the process; between processes holds that a volume is open in one. On a crash:
// nothing is kept.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>
#include <string>
#include <vector>

#include "reading.h"
#include "volume.h"

namespace dure_rocksdb {

class FileSystem : public rocksdb::FileSystem {
  using FileOptions = rocksdb::FileOptions;
  using IODebugContext = rocksdb::IODebugContext;
  using IOOptions = rocksdb::IOOptions;
  using IOStatus = rocksdb::IOStatus;
  template <typename T>
  using Made = std::unique_ptr<T>*;

 public:
  // The file system of a URI, or null: *error says why.
  static std::unique_ptr<FileSystem> make(const std::string& uri,
                                          std::string* error);
  ~FileSystem() override;

  const char* Name() const override { return "DureFileSystem"; }
  const char* NickName() const override { return "dure"; }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             Made<rocksdb::FSSequentialFile> made,
                             IODebugContext* debug) override;
  IOStatus NewRandomAccessFile(const std::string& path,
                               const FileOptions& options,
                               Made<rocksdb::FSRandomAccessFile> made,
                               IODebugContext* debug) override;
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           Made<rocksdb::FSWritableFile> made,
                           IODebugContext* debug) override;
  IOStatus ReopenWritableFile(const std::string& path,
                              const FileOptions& options,
                              Made<rocksdb::FSWritableFile> made,
                              IODebugContext* debug) override;
  IOStatus NewRandomRWFile(const std::string& path, const FileOptions& options,
                           Made<rocksdb::FSRandomRWFile> made,
                           IODebugContext* debug) override;
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        Made<rocksdb::FSDirectory> made,
                        IODebugContext* debug) override;

  IOStatus FileExists(const std::string& path, const IOOptions& options,
                      IODebugContext* debug) override;
  IOStatus GetChildren(const std::string& path, const IOOptions& options,
                       std::vector<std::string>* names,
                       IODebugContext* debug) override;
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* debug) override;
  IOStatus Truncate(const std::string& path, size_t size,
                    const IOOptions& options, IODebugContext* debug) override;
  IOStatus CreateDir(const std::string& path, const IOOptions& options,
                     IODebugContext* debug) override;
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions& options,
                              IODebugContext* debug) override;
  IOStatus DeleteDir(const std::string& path, const IOOptions& options,
                     IODebugContext* debug) override;
  IOStatus GetFileSize(const std::string& path, const IOOptions& options,
                       uint64_t* size, IODebugContext* debug) override;
  IOStatus GetFileModificationTime(const std::string& path,
                                   const IOOptions& options, uint64_t* seconds,
                                   IODebugContext* debug) override;
  IOStatus RenameFile(const std::string& from, const std::string& to,
                      const IOOptions& options, IODebugContext* debug) override;
  IOStatus LinkFile(const std::string& from, const std::string& to,
                    const IOOptions& options, IODebugContext* debug) override;
  IOStatus NumFileLinks(const std::string& path, const IOOptions& options,
                        uint64_t* count, IODebugContext* debug) override;
  IOStatus AreFilesSame(const std::string& first, const std::string& second,
                        const IOOptions& options, bool* same,
                        IODebugContext* debug) override;
  IOStatus LockFile(const std::string& path, const IOOptions& options,
                    rocksdb::FileLock** lock, IODebugContext* debug) override;
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions& options,
                      IODebugContext* debug) override;
  IOStatus GetTestDirectory(const IOOptions& options, std::string* path,
                            IODebugContext* debug) override;
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions& options,
                           std::string* absolute,
                           IODebugContext* debug) override;
  IOStatus GetFreeSpace(const std::string& path, const IOOptions& options,
                        uint64_t* bytes, IODebugContext* debug) override;
  IOStatus IsDirectory(const std::string& path, const IOOptions& options,
                       bool* is_directory, IODebugContext* debug) override;
  IOStatus Poll(std::vector<void*>& handles, size_t least) override;
  IOStatus AbortIO(std::vector<void*>& handles) override;

  FileOptions OptimizeForLogWrite(
      const FileOptions& options,
      const rocksdb::DBOptions& database) const override;
  FileOptions OptimizeForManifestWrite(
      const FileOptions& options) const override;

 private:
  FileSystem(std::shared_ptr<Volume> volume, dure_session* session)
      : volume_(std::move(volume)), session_(session) {}

  IOStatus open(const std::string& path, int flags, const char* during,
                std::unique_ptr<Open>* made) const;
  IOStatus open_writable(const std::string& path, int flags,
                         const FileOptions& options,
                         Made<rocksdb::FSWritableFile> made) const;
  IOStatus stat(const std::string& path, const char* during,
                struct dure_stat* found) const;

  const std::shared_ptr<Volume> volume_;
  dure_session* const session_;
};

}  // namespace dure_rocksdb
