// The side effects of a call: they decide whether a node may be eliminated as dead.
#pragma once

#include "fake/fake.h"
#include "graph/record/program.h"

#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

namespace alternator::graph {

// `__name__` without running Python where the type is known; empty if there is none.
std::string callable_name(Borrowed callable);
// Python code outside of torch. Its side effects besides torch calls are not visible.
bool is_users_function(Borrowed callable);

// What the name of a callable tells.
struct CalleeFacts {
  uint8_t effects;  // Effects
  uint16_t traits;  // Traits
};

// ... determined once for each callable of a recording.
class NamedCallees {
 public:
  CalleeFacts of(Borrowed callable);

 private:
  struct Known {
    Ref callable;  // keeps the address from being reused
    CalleeFacts facts;
  };
  ska::flat_hash_map<PyObject*, Known> known_;
};

// Observes a call: the operators that the session executes and the versions of the tensor arguments.
class EffectWatch {
 public:
  explicit EffectWatch(const fake::Session& session) : session_(session), before_(session.counts()) {}
  void watch(const at::Tensor& tensor);
  // After the call: the observed side effects.
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
  bool unversioned_ = false;  // an inference or wrapped tensor: writes to it are not visible
};

}  // namespace alternator::graph
