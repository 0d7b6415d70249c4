#include "trace/opcodes/iteration.h"

#include "trace/core/tracer.h"

namespace alternator::trace {

Ref next_of_preexisting(Tracer& t, Borrowed iterator) {
  const lift::Iterators::Value next = t.lifter.iterators->next(iterator);
  if (!next.value) return {};
  t.note_lazy_on_stack();
  return t.lifter.lazy->make(next.value, next.source);
}

}  // namespace alternator::trace
