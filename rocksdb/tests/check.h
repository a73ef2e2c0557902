// What the tests share: a check that ends the program, and environments of a URI.
#pragma once

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#define CHECK(true_thing)                                              \
  do {                                                                 \
    if (!(true_thing)) {                                               \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__,       \
              #true_thing);                                            \
      exit(1);                                                         \
    }                                                                  \
  } while (0)

#define CHECK_OK(call)                                                 \
  do {                                                                 \
    const rocksdb::Status checked = (call);                            \
    if (!checked.ok()) {                                               \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,    \
              checked.ToString().c_str());                             \
      exit(1);                                                         \
    }                                                                  \
  } while (0)

// The file system of a URI, by RocksDB's own way; the one of the host for "".
inline std::shared_ptr<rocksdb::FileSystem> file_system(
    const std::string& uri) {
  if (uri.empty()) {
    return rocksdb::FileSystem::Default();
  }
  std::shared_ptr<rocksdb::FileSystem> made;
  CHECK_OK(rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(), uri,
                                                 &made));
  return made;
}

inline std::string key_of(uint64_t number) {
  char key[24];
  snprintf(key, sizeof key, "%016llu",
           static_cast<unsigned long long>(number));
  return key;
}

// A value that only this key has.
inline std::string value_of(uint64_t number, size_t bytes) {
  std::string value;
  uint64_t state = number * 0x9e3779b97f4a7c15u + 1;
  while (value.size() < bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    value.append(reinterpret_cast<const char*>(&state), sizeof state);
  }
  value.resize(bytes);
  return value;
}

// The tests; each gets the URI and its further words.
int same(const std::string& uri, const std::string& folder);
int reads(const std::string& uri);
int database(const std::string& uri, const std::string& other);
int append(const std::string& uri, bool synced);
int verify(const std::string& uri, const std::string& acknowledged);
int full(const std::string& uri);
int leave(const std::string& uri, const std::string& how);
int refused(const std::string& uri);
