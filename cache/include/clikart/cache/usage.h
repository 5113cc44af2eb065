// What processes did with kernels and could not do, as they write it down beside the entries: one file a
// process, which it only appends to, so that nobody waits for anybody.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace clikart::cache {

struct Usage {
  struct Rejection {
    int64_t count = 0;
    std::string example;  // of one of them
  };

  std::map<std::string, int64_t> hits;          // by key: answered from memory or disk
  std::map<std::string, Rejection> rejections;  // by reason

  bool empty() const { return hits.empty() && rejections.empty(); }
  // Lines "hit KEY COUNT" and "rejection REASON COUNT EXAMPLE".
  std::string ToString() const;
  // Adds what the lines say; the last one may be half written, and what is no such line is skipped.
  void Add(std::string_view lines);
};

}  // namespace clikart::cache
