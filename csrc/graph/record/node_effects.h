// What a call did besides returning: decides whether a node may be dropped.
#pragma once

#include "fake/fake.h"
#include "graph/record/program.h"

#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

namespace alternator::graph {

// `__name__` without running Python where the type is known; empty if there is none.
std::string callable_name(Borrowed callable);
// Python code that is not torch's. What it does besides its torch calls is not seen.
bool is_users_function(Borrowed callable);

// What the name of a callable says about its effects; asked once for each callable of a recording.
class NamedEffects {
 public:
  uint8_t of(Borrowed callable);

 private:
  struct Known {
    Ref callable;  // keeps the address from meaning another one
    uint8_t effects;
  };
  ska::flat_hash_map<PyObject*, Known> known_;
};

// Watches a call: the operators that the session sees and the versions of the tensors that are passed.
class EffectWatch {
 public:
  explicit EffectWatch(const fake::Session& session) : session_(session), before_(session.counts()) {}
  void watch(const at::Tensor& tensor);
  // After the call: what was seen of it.
  uint8_t effects(Borrowed callable) const;
  bool wrote_argument() const;

 private:
  const fake::Session& session_;
  fake::Session::Counts before_;
  struct Watched {
    const c10::TensorImpl* impl;
    uint32_t version;
  };
  c10::SmallVector<Watched, 8> watched_;
  bool unversioned_ = false;  // an inference or wrapped tensor: writes to it leave no trace
};

}  // namespace alternator::graph
