// The calls of FileSystem, on a volume and on the file system of the host: the same outcomes.
#include <algorithm>
#include <ctime>
#include <functional>
#include <random>

#include "check.h"

using namespace rocksdb;

namespace {

const IOOptions kNone;
const FileOptions kPlain;

// One of the two, with what the calls return as text.
struct Side {
  std::shared_ptr<FileSystem> fs;
  std::string root;

  std::string path(const std::string& name) const { return root + "/" + name; }
};

// Text in the order of the calls, which the operands of + have not.
class Text {
 public:
  Text& operator<<(const std::string& more) {
    all_ += more;
    return *this;
  }
  operator std::string() const { return all_; }

 private:
  std::string all_;
};

std::string said(const Status& status) {
  return std::to_string(status.code()) + "." +
         std::to_string(status.subcode());
}

std::string write(const Side& side, const std::string& name,
                  const std::string& data, bool reopen = false,
                  const FileOptions& options = kPlain) {
  std::unique_ptr<FSWritableFile> file;
  const IOStatus status =
      reopen ? side.fs->ReopenWritableFile(side.path(name), options, &file,
                                           nullptr)
             : side.fs->NewWritableFile(side.path(name), options, &file,
                                        nullptr);
  if (!status.ok()) return said(status);
  const size_t half = data.size() / 2;
  Text all = Text() << said(file->Append(Slice(data.data(), half), kNone, nullptr));
  all << said(file->Append(Slice(data.data() + half, data.size() - half), kNone,
                           nullptr));
  all << said(file->Flush(kNone, nullptr)) << said(file->Sync(kNone, nullptr)) <<
         said(file->Fsync(kNone, nullptr)) <<
         said(file->RangeSync(0, half, kNone, nullptr)) <<
         said(file->InvalidateCache(0, 0));
  if (!reopen) all << std::to_string(file->GetFileSize(kNone, nullptr));
  return all << said(file->Close(kNone, nullptr));
}

std::string read_in_order(const Side& side, const std::string& name) {
  std::unique_ptr<FSSequentialFile> file;
  const IOStatus status =
      side.fs->NewSequentialFile(side.path(name), kPlain, &file, nullptr);
  if (!status.ok()) return said(status);
  Text all;
  std::string scratch(10000, '\0');
  Slice result;
  const IOStatus first = file->Read(7, kNone, &result, scratch.data(), nullptr);
  if (!first.ok()) return said(first);
  all << result.ToString() << said(file->Skip(5));
  do {
    all << said(file->Read(9000, kNone, &result, scratch.data(), nullptr)) <<
           result.ToString();
  } while (!result.empty());
  return all << said(file->Skip(5)) << said(file->InvalidateCache(0, 0));
}

std::string read_at(const Side& side, const std::string& name,
                    const FileOptions& options = kPlain) {
  std::unique_ptr<FSRandomAccessFile> file;
  const IOStatus status =
      side.fs->NewRandomAccessFile(side.path(name), options, &file, nullptr);
  if (!status.ok()) return said(status);
  Text all;
  static char scratch[4][8192] __attribute__((aligned(4096)));
  FSReadRequest requests[4];
  for (int i = 0; i < 4; ++i) {
    Slice result;
    // Within, across the end, behind it.
    const uint64_t offset = static_cast<uint64_t>(i) * 8192;
    const IOStatus read =
        file->Read(offset, 8192, kNone, &result, scratch[i], nullptr);
    if (!read.ok()) return all << said(read);
    all << result.ToString() << ".";
    requests[i].offset = offset;
    requests[i].len = 4096;
    requests[i].scratch = scratch[i];
  }
  all << said(file->MultiRead(requests, 4, kNone, nullptr));
  for (FSReadRequest& request : requests) {
    all << said(request.status) << request.result.ToString();
  }
  if (!file->use_direct_io()) {
    all << said(file->Prefetch(0, 10, kNone, nullptr));
  }
  file->Hint(FSRandomAccessFile::kWillNeed);
  file->Hint(FSRandomAccessFile::kWontNeed);
  return all << said(file->InvalidateCache(1, 5000));
}

std::string write_anywhere(const Side& side, const std::string& name) {
  std::unique_ptr<FSRandomRWFile> file;
  const IOStatus status =
      side.fs->NewRandomRWFile(side.path(name), kPlain, &file, nullptr);
  if (!status.ok()) return said(status);
  char scratch[100];
  Slice result;
  Text all = Text() << said(file->Write(5000, "later", kNone, nullptr)) <<
                    said(file->Write(3, "sooner", kNone, nullptr)) <<
                    said(file->Flush(kNone, nullptr)) <<
                    said(file->Sync(kNone, nullptr)) <<
                    said(file->Fsync(kNone, nullptr));
  all << said(file->Read(2, 100, kNone, &result, scratch, nullptr)) <<
         result.ToString();
  return all << said(file->Close(kNone, nullptr));
}

// Appends by whole pages, the last one cut, as RocksDB writes with O_DIRECT.
std::string write_directly(const Side& side, const std::string& name) {
  FileOptions options;
  options.use_direct_writes = options.use_direct_reads = true;
  std::unique_ptr<FSWritableFile> file;
  const IOStatus status =
      side.fs->NewWritableFile(side.path(name), options, &file, nullptr);
  if (!status.ok()) return said(status);
  static char pages[8192] __attribute__((aligned(4096)));
  std::fill(pages, pages + 8192, 'd');
  Text all;
  all << std::to_string(file->use_direct_io()) <<
      said(file->PositionedAppend(Slice(pages, 8192), 0, kNone, nullptr)) <<
      said(file->PositionedAppend(Slice(pages, 8192), 4096, kNone, nullptr)) <<
      said(file->Sync(kNone, nullptr)) <<
      said(file->Truncate(9000, kNone, nullptr)) <<
      said(file->Close(kNone, nullptr));
  return all << read_at(side, name, options) << read_in_order(side, name);
}

std::string list(const Side& side, const std::string& name,
                 const IOOptions& options = kNone) {
  std::vector<std::string> names;
  Text all = Text() << said(
      side.fs->GetChildren(side.path(name), options, &names, nullptr));
  std::sort(names.begin(), names.end());
  for (const std::string& found : names) all << " " + found;
  return all;
}

std::string size(const Side& side, const std::string& name) {
  uint64_t bytes = 0, links = 0;
  Text all = Text()
      << said(side.fs->GetFileSize(side.path(name), kNone, &bytes, nullptr)) <<
      std::to_string(bytes) <<
      said(side.fs->NumFileLinks(side.path(name), kNone, &links, nullptr));
  // The first call leaves the count alone if it fails.
  return all << std::to_string(links);
}

std::string kind(const Side& side, const std::string& name) {
  bool is_directory = false;
  const IOStatus status = side.fs->IsDirectory(side.path(name), kNone,
                                               &is_directory, nullptr);
  return Text() << said(status) << (status.ok() && is_directory ? " d" : "") <<
         said(side.fs->FileExists(side.path(name), kNone, nullptr));
}

std::string alike(const Side& side, const std::string& a,
                  const std::string& b) {
  bool same = false;
  const IOStatus status =
      side.fs->AreFilesSame(side.path(a), side.path(b), kNone, &same, nullptr);
  return Text() << said(status) << std::to_string(same);
}

std::string lock_twice(const Side& side, const std::string& name) {
  FileLock *lock = nullptr, *again = nullptr;
  Text all = Text()
      << said(side.fs->LockFile(side.path(name), kNone, &lock, nullptr));
  if (lock == nullptr) return all;
  all << said(side.fs->LockFile(side.path(name), kNone, &again, nullptr));
  CHECK(again == nullptr);
  all << said(side.fs->UnlockFile(lock, kNone, nullptr));
  all << said(side.fs->LockFile(side.path(name), kNone, &lock, nullptr));
  return all << said(side.fs->UnlockFile(lock, kNone, nullptr));
}

std::string reuse(const Side& side, const std::string& old,
                  const std::string& name) {
  std::unique_ptr<FSWritableFile> file;
  const IOStatus status = side.fs->ReuseWritableFile(
      side.path(name), side.path(old), kPlain, &file, nullptr);
  if (!status.ok()) return said(status);
  return Text() << said(file->Append("anew", kNone, nullptr)) <<
         said(file->Truncate(4, kNone, nullptr)) <<
         said(file->Close(kNone, nullptr));
}

std::string log(const Side& side, const std::string& name) {
  std::shared_ptr<Logger> logger;
  const IOStatus status =
      side.fs->NewLogger(side.path(name), kNone, &logger, nullptr);
  if (!status.ok()) return said(status);
  logger->SetInfoLogLevel(InfoLogLevel::INFO_LEVEL);
  Log(InfoLogLevel::INFO_LEVEL, logger.get(), "a line");
  logger->Flush();
  CHECK_OK(logger->Close());
  std::string content;
  CHECK_OK(ReadFileToString(side.fs.get(), side.path(name), &content));
  return content.substr(content.rfind("a line"));
}

using Call = std::function<std::string(const Side&)>;

// A call with names of `names`, chosen by chance.
Call drawn(std::mt19937& random) {
  const auto draw = [&](unsigned below) {
    return static_cast<unsigned>(random() % below);
  };
  const auto name = [&] {
    const char* const names[] = {"a", "b", "c", "d/a", "d/b", "d", "e/a", "e"};
    return std::string(names[draw(8)]);
  };
  const std::string one = name(), other = name();
  const std::string data = value_of(draw(1000), draw(30000) + 2);
  switch (draw(12)) {
    case 0: return [=](const Side& s) { return write(s, one, data); };
    case 1: return [=](const Side& s) { return write(s, one, data, true); };
    case 2: return [=](const Side& s) { return read_in_order(s, one); };
    case 3: return [=](const Side& s) { return read_at(s, one); };
    case 4: return [=](const Side& s) {
      return said(s.fs->RenameFile(s.path(one), s.path(other), kNone, nullptr));
    };
    case 5: return [=](const Side& s) {
      return said(s.fs->LinkFile(s.path(one), s.path(other), kNone, nullptr));
    };
    case 6: return [=](const Side& s) {
      return said(s.fs->DeleteFile(s.path(one), kNone, nullptr));
    };
    case 7: return [=](const Side& s) {
      return write_anywhere(s, one);
    };
    case 8: return [=](const Side& s) {
      return Text() << list(s, "d") << list(s, "") << list(s, one);
    };
    case 9: return [=](const Side& s) {
      return Text() << kind(s, one) << kind(s, other) << alike(s, one, other);
    };
    case 10: return [=](const Side& s) {
      return said(s.fs->CreateDirIfMissing(s.path(one), kNone, nullptr));
    };
    default: return [=](const Side& s) {
      return said(s.fs->DeleteDir(s.path(one), kNone, nullptr));
    };
  }
}

std::vector<std::pair<std::string, Call>> chosen() {
  const std::string long_name(300, 'n');
  const std::string data = value_of(1, 20000);
  const auto make = [](const Side& s, const std::string& name) {
    return said(s.fs->CreateDir(s.path(name), kNone, nullptr));
  };
  IOOptions files_only;
  files_only.do_not_recurse = true;
  return {
      {"nothing there", [=](const Side& s) {
         std::unique_ptr<FSDirectory> directory;
         return Text() << read_in_order(s, "no") << read_at(s, "no") << size(s, "no") <<
                kind(s, "no") << list(s, "no") << write(s, "no/file", "x") <<
                write_anywhere(s, "no") << reuse(s, "no", "no2") <<
                lock_twice(s, "no/lock") << said(s.fs->NewDirectory(
                    s.path("no"), kNone, &directory, nullptr));
       }},
      {"directories", [=](const Side& s) {
         return Text() << make(s, "x") << make(s, "x") << make(s, "x/y") << make(s, "no/y") <<
                said(s.fs->DeleteDir(s.path("x"), kNone, nullptr)) <<
                write(s, "x/file", "x") << list(s, "x") <<
                list(s, "x", files_only) << kind(s, "x") << kind(s, "x/file") <<
                said(s.fs->CreateDirIfMissing(s.path("x/file"), kNone, nullptr)) <<
                said(s.fs->CreateDirIfMissing(s.path("x"), kNone, nullptr)) <<
                list(s, "x/file") << write(s, "x", "x");
       }},
      {"a file", [=](const Side& s) {
         return Text() << write(s, "f", data) << size(s, "f") << read_in_order(s, "f") <<
                read_at(s, "f") << write(s, "f", "more", true) << size(s, "f") <<
                write(s, "f", "less") << size(s, "f") << read_at(s, "f");
       }},
      {"anywhere", [=](const Side& s) {
         return Text() << write_anywhere(s, "f") << size(s, "f") << read_in_order(s, "f");
       }},
      {"direct", [=](const Side& s) { return write_directly(s, "direct"); }},
      {"reused", [=](const Side& s) {
         return Text() << write(s, "old", data) << reuse(s, "old", "new") <<
                read_in_order(s, "new") << kind(s, "old");
       }},
      {"links", [=](const Side& s) {
         return Text() << said(s.fs->LinkFile(s.path("f"), s.path("g"), kNone, nullptr)) <<
                size(s, "f") << alike(s, "f", "g") << alike(s, "f", "new") <<
                alike(s, "f", "no");
       }},
      {"locks", [=](const Side& s) { return lock_twice(s, "lock"); }},
      {"a log", [=](const Side& s) { return log(s, "log"); }},
      {"long names", [=](const Side& s) {
         return Text() << write(s, long_name, "x") << kind(s, long_name);
       }},
      {"a folder synced", [=](const Side& s) {
         std::unique_ptr<FSDirectory> directory;
         CHECK_OK(s.fs->NewDirectory(s.root, kNone, &directory, nullptr));
         return Text() << said(directory->Fsync(kNone, nullptr)) <<
                said(directory->FsyncWithDirOptions(
                    kNone, nullptr, DirFsyncOptions("f"))) <<
                said(directory->Close(kNone, nullptr));
       }},
  };
}

void compare(const Side& dure, const Side& host, const std::string& name,
             const Call& call) {
  const std::string one = call(dure), other = call(host);
  if (one != other) {
    fprintf(stderr, "%s: dure:\n%.600s\nhost:\n%.600s\n", name.c_str(),
            one.c_str(), other.c_str());
    exit(1);
  }
}

// RocksDB's file system of the host has no such call.
void truncation(const Side& side) {
  uint64_t bytes = 0;
  CHECK(write(side, "cut", "sown together") != "");
  CHECK_OK(side.fs->Truncate(side.path("cut"), 4, kNone, nullptr));
  CHECK_OK(side.fs->GetFileSize(side.path("cut"), kNone, &bytes, nullptr));
  CHECK(bytes == 4);
  CHECK(side.fs->Truncate(side.path("no"), 4, kNone, nullptr).IsPathNotFound());
}

// What RocksDB asks to be allocated takes no room; times and sizes are right.
void allocation(const Side& side) {
  uint64_t before = 0, during = 0;
  const auto room = [&](uint64_t* bytes) {
    CHECK_OK(side.fs->GetFreeSpace(side.root, kNone, bytes, nullptr));
  };
  std::unique_ptr<FSWritableFile> file;
  CHECK_OK(side.fs->NewWritableFile(side.path("big"), kPlain, &file, nullptr));
  CHECK_OK(file->Append("x", kNone, nullptr));
  CHECK_OK(file->Fsync(kNone, nullptr));
  room(&before);
  file->SetPreallocationBlockSize(8 << 20);
  file->PrepareWrite(1, 1, kNone, nullptr);
  room(&during);
  CHECK(during + (1 << 20) > before);
  CHECK_OK(file->Append("y", kNone, nullptr));
  CHECK_OK(file->Close(kNone, nullptr));
  uint64_t bytes = 0, seconds = 0;
  CHECK_OK(side.fs->GetFileSize(side.path("big"), kNone, &bytes, nullptr));
  CHECK(bytes == 2);
  CHECK_OK(side.fs->GetFileModificationTime(side.path("big"), kNone, &seconds,
                                            nullptr));
  const auto now = static_cast<uint64_t>(time(nullptr));
  CHECK(seconds + 60 > now && seconds < now + 60);
}

}  // namespace

int same(const std::string& uri, const std::string& folder) {
  const Side dure{file_system(uri), "/same"};
  const Side host{file_system(""), folder + "/same"};
  for (const Side& side : {dure, host}) {
    CHECK_OK(side.fs->CreateDir(side.root, kNone, nullptr));
  }
  for (const auto& [name, call] : chosen()) {
    compare(dure, host, name, call);
  }
  std::mt19937 random(1);
  for (int step = 0; step < 4000; ++step) {
    compare(dure, host, "step " + std::to_string(step), drawn(random));
  }
  truncation(dure);
  allocation(dure);
  std::string path;
  CHECK_OK(dure.fs->GetAbsolutePath("db", kNone, &path, nullptr));
  CHECK(path == "/db");
  CHECK_OK(dure.fs->GetTestDirectory(kNone, &path, nullptr));
  CHECK_OK(dure.fs->FileExists(path, kNone, nullptr));
  puts("same: 4000 calls by chance, and the others");
  return 0;
}
