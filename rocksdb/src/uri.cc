#include "uri.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace dure_rocksdb {
namespace {

constexpr char kScheme[] = "dure://";
constexpr char kOptions[] = "?options=";

enum class Found { kVolume, kNothing, kSomethingElse };

// What is at a path of the host.
Found look(const std::string& path, Medium* medium) {
  struct stat there;
  if (::stat(path.c_str(), &there) != 0) {
    // Below a file there is nothing, and the file is looked at next.
    return errno == ENOENT || errno == ENOTDIR ? Found::kNothing
                                               : Found::kSomethingElse;
  }
  if (S_ISREG(there.st_mode)) {
    *medium = Medium{false, there.st_dev, there.st_ino};
    return Found::kVolume;
  }
  if (S_ISBLK(there.st_mode)) {
    *medium = Medium{true, there.st_rdev, 0};
    return Found::kVolume;
  }
  return Found::kSomethingElse;
}

}  // namespace

std::string parse(const std::string& uri, Uri* parsed) {
  if (uri.compare(0, strlen(kScheme), kScheme) != 0) {
    return "does not begin with dure://";
  }
  std::string path = uri.substr(strlen(kScheme));
  const size_t options = path.find(kOptions);
  if (options != std::string::npos) {
    parsed->options = path.substr(options + strlen(kOptions));
    path.resize(options);
  }
  // The longest prefix that there is.
  for (size_t end = path.size(); end != std::string::npos && end > 0;
       end = path.rfind('/', end - 1)) {
    const std::string image = path.substr(0, end);
    const Found found = look(image, &parsed->medium);
    if (found == Found::kVolume) {
      parsed->image = image;
      parsed->folder = end < path.size() ? path.substr(end) : "/";
      return "";
    }
    if (found == Found::kSomethingElse) {
      break;
    }
  }
  return "no part of the path is an image file or a block device that can be "
         "looked at: dure://VOLUME/FOLDER is meant";
}

}  // namespace dure_rocksdb
