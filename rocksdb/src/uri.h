// Where a database is: which volume, and which folder of it.
//
// Problem. `--fs_uri` is one word, and has to name an image file or a block device of the host, a
// folder in its volume, and options of the mount. Structure. `dure://PATH?options=WORDS`, where
// PATH leads through the image as if that were a directory: what stands behind the image is the
// folder. Invariants. A file has no files below it, so at most one prefix of PATH is an image or a
// device. On a crash: nothing is kept.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

namespace dure_rocksdb {

// Which file or device: names may be several.
struct Medium {
  bool is_device = false;
  uint64_t device = 0;  // of the file's file system, or the block device itself
  uint64_t file = 0;    // number of the file; 0 of a device

  bool operator<(const Medium& other) const {
    return std::tie(is_device, device, file) <
           std::tie(other.is_device, other.device, other.file);
  }
};

struct Uri {
  Medium medium;
  std::string image;    // on the host
  std::string folder;   // in the volume; begins with a slash
  std::string options;  // words of mount options (docs/user/options.md)
};

// Takes a URI apart. An empty string, or why it names no volume.
std::string parse(const std::string& uri, Uri* parsed);

}  // namespace dure_rocksdb
