// How a process ends: what it did not sync is there nevertheless, unless it was killed.
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

using namespace rocksdb;

namespace {

// Destroyed behind main, before the objects of the libraries.
std::shared_ptr<FileSystem> global;
std::unique_ptr<FSWritableFile> global_file;

struct WritesAtExit {
  ~WritesAtExit() {
    if (global_file != nullptr) {
      CHECK_OK(global_file->Append("at exit", IOOptions(), nullptr));
      CHECK_OK(global_file->Close(IOOptions(), nullptr));
    }
  }
} writes_at_exit;

// A child may not use the volume of its parent, and closes nothing.
void in_a_child(const std::string& uri) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    std::shared_ptr<FileSystem> other;
    const Status refused =
        FileSystem::CreateFromString(ConfigOptions(), uri, &other);
    std::unique_ptr<FSWritableFile> file;
    const Status failed =
        global->NewWritableFile("/child", FileOptions(), &file, nullptr);
    exit(!refused.ok() && !failed.ok() ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

}  // namespace

// `how`: static, leak or fork. The file /left is to have "before" and, unless leaked, "at exit".
int leave(const std::string& uri, const std::string& how) {
  global = file_system(uri);
  std::unique_ptr<FSWritableFile> file;
  CHECK_OK(global->NewWritableFile("/left", FileOptions(), &file, nullptr));
  CHECK_OK(file->Append("before ", IOOptions(), nullptr));
  if (how == "fork") in_a_child(uri);
  if (how == "leak") {
    file.release();
    new std::shared_ptr<FileSystem>(global);
  } else {
    global_file = std::move(file);
  }
  return 0;
}

// URIs that name no volume: each is refused with words that say why.
int refused(const std::string& uri) {
  const struct {
    std::string uri, words;
  } cases[] = {
      {"dure:///dev/null/db", "no part of the path"},
      {"dure:///no/such/file", "no part of the path"},
      {uri + "?options=nonsense", "nonsense"},
      {uri + "/no/such", "/no/such"},
  };
  for (const auto& each : cases) {
    std::shared_ptr<FileSystem> fs;
    const Status status =
        FileSystem::CreateFromString(ConfigOptions(), each.uri, &fs);
    if (status.ok() || status.ToString().find(each.words) == std::string::npos) {
      fprintf(stderr, "%s: %s\n", each.uri.c_str(), status.ToString().c_str());
      return 1;
    }
  }
  // The last name of a folder is made; two file systems of one volume see each other.
  const std::shared_ptr<FileSystem> one = file_system(uri + "/made");
  const std::shared_ptr<FileSystem> other =
      file_system(uri + "?options=cache=8M,commit=1");
  CHECK_OK(one->CreateDirIfMissing("/inside", IOOptions(), nullptr));
  CHECK_OK(other->FileExists("/made/inside", IOOptions(), nullptr));
  puts("refused: with reasons");
  return 0;
}
