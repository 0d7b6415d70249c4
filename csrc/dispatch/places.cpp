#include "dispatch/places.h"

#include "trace/stopped.h"

#include <algorithm>

namespace alternator::dispatch {

bool drop(Place& place, const std::shared_ptr<Entry>& entry) {
  place.shelf->remove(entry);
  return std::erase(place.entries, entry) > 0;
}

void look_there_first(Place& place, const std::shared_ptr<Entry>& entry) {
  auto found = std::find(place.entries.begin(), place.entries.end(), entry);
  if (found != place.entries.end()) std::rotate(place.entries.begin(), found, found + 1);
}

// Of a Place or a Shelf; `values` are the chain's.
template <class Where>
static bool is_at(const Where& place, const Chain& chain, const std::vector<PyObject*>& values) {
  if (place.shape.size() != chain.size() || place.present.size() != values.size()) return false;
  for (size_t i = 0; i < chain.size(); i++) {
    if (!trace::same_shape(place.shape[i], chain[i])) return false;
  }
  for (size_t i = 0; i < values.size(); i++) {
    if ((values[i] != nullptr) != (place.present[i] != 0)) return false;
  }
  return true;
}

static std::shared_ptr<Shelf> shelf_of(Store& store, const Chain& chain, const std::vector<PyObject*>& values,
                                       const Place& place) {
  for (const std::shared_ptr<Shelf>& shelf : store.resumed) {
    if (is_at(*shelf, chain, values)) return shelf;
  }
  auto shelf = std::make_shared<Shelf>();
  shelf->shape = place.shape;
  shelf->present = place.present;
  store.resumed.push_back(shelf);
  return shelf;
}

std::shared_ptr<Place> place_of(Compilation& compilation, const Chain& chain, const std::vector<PyObject*>& values,
                                Entry& last) {
  std::shared_ptr<Place> expected = last.next.lock();
  if (expected != nullptr && expected->owner == &compilation && is_at(*expected, chain, values)) return expected;
  for (const std::shared_ptr<Place>& place : compilation.resumed) {
    if (is_at(*place, chain, values)) {
      last.next = place;
      return place;
    }
  }
  auto place = std::make_shared<Place>();
  for (const FrameState& state : chain) place->shape.push_back(trace::shape_of(state));
  for (const PyObject* value : values) place->present.push_back(value != nullptr ? 1 : 0);
  place->owner = &compilation;
  place->shelf = shelf_of(*compilation.store, chain, values, *place);
  compilation.resumed.push_back(place);
  last.next = place;
  return place;
}

}  // namespace alternator::dispatch
