// door TEST URI [WORD]: one test, on a volume that is there.
#include "check.h"

int main(int argc, char** argv) {
  const std::string test = argc > 1 ? argv[1] : "";
  const std::string uri = argc > 2 ? argv[2] : "";
  const std::string word = argc > 3 ? argv[3] : "";
  if (test == "same") return same(uri, word);
  if (test == "reads") return reads(uri);
  if (test == "database") return database(uri, word);
  if (test == "append") return append(uri, word != "lies");
  if (test == "verify") return verify(uri, word);
  if (test == "full") return full(uri);
  if (test == "leave") return leave(uri, word);
  if (test == "refused") return refused(uri);
  fprintf(stderr, "usage: door TEST URI [WORD]\n");
  return 2;
}
