// A stopped chain of frames as a list of values: the arguments of a resume point.
#pragma once

#include "interpreter/frame_state.h"

namespace alternator {

// Visits every value of a chain, null ones included, outermost frame first. Sources, guards and residual programs
// number them in this order. A function that has not started is a chain of one frame: its slots come first.
template <class AnyChain, class Visit>
void each_value(AnyChain& chain, Visit&& visit) {
  for (size_t i = chain.size(); i-- > 0;) {
    auto& state = chain[i];
    if (i + 1 < chain.size()) visit(state.function);
    for (auto& local : state.locals) visit(local);
    for (auto& value : state.stack) visit(value);
    visit(state.first_argument);
    visit(state.generator);
    visit(state.locals_mapping);
    visit(state.frame_object);
    if (state.saved_exception_slot >= 0) visit(state.handled);
  }
}

// The number of these values.
inline size_t value_count(const Chain& chain) {
  size_t count = 0;
  for (const FrameState& state : chain)
    count += 5 + state.locals.size() + state.stack.size() + (state.saved_exception_slot >= 0 ? 1 : 0);
  return count - 1;  // the outermost frame's function is not counted
}

// The parts of a frame that are not values: the same in every call that stops at the same resume point. `shape` is new.
inline void take_shape(FrameState* shape, const FrameState& state) {
  shape->code = state.code;
  shape->next = state.next;
  shape->current = state.current;
  shape->operands = state.operands;
  shape->attempt = state.attempt;
  shape->continuation = state.continuation;
  shape->saved_exception_slot = state.saved_exception_slot;
  shape->keyword_names = state.keyword_names;
  shape->locals.resize(state.locals.size());
  shape->stack.resize(state.stack.size());
}

inline FrameState shape_of(const FrameState& state) {
  FrameState shape;
  take_shape(&shape, state);
  return shape;
}

// Whether two frames differ in their values only.
inline bool same_shape(const FrameState& a, const FrameState& b) {
  return a.code.get() == b.code.get() && a.next == b.next && a.current == b.current && a.operands == b.operands &&
         a.attempt == b.attempt && a.continuation == b.continuation &&
         a.saved_exception_slot == b.saved_exception_slot && a.keyword_names.get() == b.keyword_names.get() &&
         a.stack.size() == b.stack.size();
}

}  // namespace alternator
