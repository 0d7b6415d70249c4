#include "dispatch/resume_points.h"

#include "dispatch/dynamism_policy.h"
#include "interpreter/frame_values.h"

#include <algorithm>

namespace alternator::dispatch {

bool drop(ResumePoint& point, const std::shared_ptr<Entry>& entry) {
  point.cache->remove(entry);
  return std::erase(point.entries, entry) > 0;
}

static auto first_symbolic(ResumePoint& point) {
  return std::ranges::find_if(point.entries, [](const std::shared_ptr<Entry>& entry) { return entry->is_symbolic(); });
}

void add_entry(ResumePoint& point, const std::shared_ptr<Entry>& entry) {
  point.recent = entry.get();
  point.entries.insert(entry->is_symbolic() ? first_symbolic(point) : point.entries.begin(), entry);
}

void move_to_front(ResumePoint& point, const std::shared_ptr<Entry>& entry) {
  const auto found = std::ranges::find(point.entries, entry);
  if (found == point.entries.end()) return;
  point.recent = entry.get();
  std::rotate(entry->is_symbolic() ? first_symbolic(point) : point.entries.begin(), found, found + 1);
}

std::shared_ptr<Entry> recent_entry(const ResumePoint& point) {
  for (const std::shared_ptr<Entry>& entry : point.entries) {
    if (entry.get() == point.recent) return entry;
  }
  return point.entries.empty() ? nullptr : point.entries.front();
}

// For a ResumePoint or a SharedCache; `values` are the chain's.
template <class Where>
static bool is_at(const Where& point, const Chain& chain, const std::vector<PyObject*>& values) {
  if (point.shape.size() != chain.size() || point.present.size() != values.size()) return false;
  for (size_t i = 0; i < chain.size(); i++) {
    if (!same_shape(point.shape[i], chain[i])) return false;
  }
  for (size_t i = 0; i < values.size(); i++) {
    if ((values[i] != nullptr) != (point.present[i] != 0)) return false;
  }
  return true;
}

static std::shared_ptr<SharedCache> cache_of(Store& store, const Chain& chain, const std::vector<PyObject*>& values,
                                             const ResumePoint& point) {
  for (const std::shared_ptr<SharedCache>& cache : store.resumed) {
    if (is_at(*cache, chain, values)) return cache;
  }
  auto cache = std::make_shared<SharedCache>();
  cache->shape = point.shape;
  cache->present = point.present;
  store.resumed.push_back(cache);
  return cache;
}

std::shared_ptr<ResumePoint> resume_point_of(Compilation& compilation, const Chain& chain,
                                             const std::vector<PyObject*>& values, Entry& last) {
  std::shared_ptr<ResumePoint> expected = last.next.lock();
  if (expected != nullptr && expected->owner == &compilation && is_at(*expected, chain, values)) return expected;
  for (const std::shared_ptr<ResumePoint>& point : compilation.resumed) {
    if (is_at(*point, chain, values)) {
      last.next = point;
      carry_dynamism(last, *point->cache);
      return point;
    }
  }
  auto point = std::make_shared<ResumePoint>();
  for (const FrameState& state : chain) point->shape.push_back(shape_of(state));
  for (const PyObject* value : values) point->present.push_back(value != nullptr ? 1 : 0);
  point->owner = &compilation;
  point->cache = cache_of(*compilation.store, chain, values, *point);
  compilation.resumed.push_back(point);
  carry_dynamism(last, *point->cache);
  last.next = point;
  return point;
}

}  // namespace alternator::dispatch
