// Entries that several compile()s of the same code, backend and options have made.
//
// An entry belongs to those who use it: each compile() keeps its own list, in its own order and with its own limit. On
// the shelf it stands for others to find: what one block of a model has compiled, the next eleven use. A shelf keeps
// nothing alive.
#pragma once

#include "dispatch/entry.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace alternator::dispatch {

// Of one place: see driver.h.
struct Shelf {
  Chain shape;
  std::vector<char> present;
  std::vector<std::weak_ptr<Entry>> entries;  // the oldest first

  void add(const std::shared_ptr<Entry>& entry) { entries.push_back(entry); }
  void remove(const std::shared_ptr<Entry>& entry) {
    std::erase_if(entries, [&](const std::weak_ptr<Entry>& other) { return other.lock() == entry; });
  }
  // Those that others have made, the newest first.
  std::vector<std::shared_ptr<Entry>> others(const std::vector<std::shared_ptr<Entry>>& own) {
    std::erase_if(entries, [](const std::weak_ptr<Entry>& entry) { return entry.expired(); });
    std::vector<std::shared_ptr<Entry>> found;
    for (size_t i = entries.size(); i-- > 0;) {
      std::shared_ptr<Entry> entry = entries[i].lock();
      if (entry != nullptr && std::find(own.begin(), own.end(), entry) == own.end()) found.push_back(std::move(entry));
    }
    return found;
  }
};

// All places of one code object.
struct Store {
  std::shared_ptr<Shelf> start = std::make_shared<Shelf>();
  std::vector<std::shared_ptr<Shelf>> resumed;

  void clear() {
    start->entries.clear();
    for (const std::shared_ptr<Shelf>& shelf : resumed) shelf->entries.clear();
    const auto dying = std::exchange(resumed, {});
  }
};

}  // namespace alternator::dispatch
