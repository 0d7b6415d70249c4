// Symbolic arrays: numpy arrays that the graph computes. In a trace they are ordinary arrays of the right dtype, shape
// and strides, over meaningless elements that nothing may read.
#pragma once

#include "lift/sources/numpy_types.h"

#include <unordered_map>

namespace alternator::lift {

class SymbolicArrays {
 public:
  bool empty() const { return roots_.empty(); }
  // The result of a node.
  void add(Borrowed array) {
    results_.try_emplace(array.get(), Ref::share(array));
    Borrowed root = array_root(array);
    roots_.try_emplace(root.get(), Ref::share(root));
  }
  bool is_result(Borrowed array) const { return results_.count(array.get()) != 0; }
  // Whether it is symbolic, or shares memory with a symbolic array.
  bool has(Borrowed array) const { return !roots_.empty() && roots_.count(array_root(array).get()) != 0; }

  // A pre-existing array: `stand_in` replaces it where numpy computes dtypes and shapes.
  void add_preexisting(Borrowed array, Ref stand_in) {
    results_.try_emplace(array.get(), Ref::share(array));
    roots_.try_emplace(array_root(stand_in).get(), Ref::share(array_root(stand_in)));
    originals_.try_emplace(stand_in.get(), Ref::share(array));
    stand_ins_.try_emplace(array.get(), std::move(stand_in));
  }
  bool has_preexisting() const { return !stand_ins_.empty(); }
  Borrowed stand_in(Borrowed array) const {
    const auto found = stand_ins_.find(array.get());
    return found != stand_ins_.end() ? Borrowed(found->second) : array;
  }
  Borrowed original(Borrowed stand_in) const {
    const auto found = originals_.find(stand_in.get());
    return found != originals_.end() ? Borrowed(found->second) : stand_in;
  }

  bool promoted = false;  // one of them was a constant before

 private:
  std::unordered_map<PyObject*, Ref> results_, roots_, stand_ins_, originals_;  // owned: keeps the addresses unique
};

}  // namespace alternator::lift
