#include "dispatch/resume_points.h"

#include "interpreter/frame_values.h"

#include <algorithm>

namespace alternator::dispatch {

bool drop(ResumePoint& place, const std::shared_ptr<Entry>& entry) {
  place.cache->remove(entry);
  return std::erase(place.entries, entry) > 0;
}

void look_there_first(ResumePoint& place, const std::shared_ptr<Entry>& entry) {
  auto found = std::find(place.entries.begin(), place.entries.end(), entry);
  if (found != place.entries.end()) std::rotate(place.entries.begin(), found, found + 1);
}

// Of a ResumePoint or a SharedCache; `values` are the chain's.
template <class Where>
static bool is_at(const Where& place, const Chain& chain, const std::vector<PyObject*>& values) {
  if (place.shape.size() != chain.size() || place.present.size() != values.size()) return false;
  for (size_t i = 0; i < chain.size(); i++) {
    if (!same_shape(place.shape[i], chain[i])) return false;
  }
  for (size_t i = 0; i < values.size(); i++) {
    if ((values[i] != nullptr) != (place.present[i] != 0)) return false;
  }
  return true;
}

static std::shared_ptr<SharedCache> cache_of(Store& store, const Chain& chain, const std::vector<PyObject*>& values,
                                             const ResumePoint& place) {
  for (const std::shared_ptr<SharedCache>& cache : store.resumed) {
    if (is_at(*cache, chain, values)) return cache;
  }
  auto cache = std::make_shared<SharedCache>();
  cache->shape = place.shape;
  cache->present = place.present;
  store.resumed.push_back(cache);
  return cache;
}

std::shared_ptr<ResumePoint> place_of(Compilation& compilation, const Chain& chain,
                                      const std::vector<PyObject*>& values, Entry& last) {
  std::shared_ptr<ResumePoint> expected = last.next.lock();
  if (expected != nullptr && expected->owner == &compilation && is_at(*expected, chain, values)) return expected;
  for (const std::shared_ptr<ResumePoint>& place : compilation.resumed) {
    if (is_at(*place, chain, values)) {
      last.next = place;
      return place;
    }
  }
  auto place = std::make_shared<ResumePoint>();
  for (const FrameState& state : chain) place->shape.push_back(shape_of(state));
  for (const PyObject* value : values) place->present.push_back(value != nullptr ? 1 : 0);
  place->owner = &compilation;
  place->cache = cache_of(*compilation.store, chain, values, *place);
  compilation.resumed.push_back(place);
  last.next = place;
  return place;
}

}  // namespace alternator::dispatch
