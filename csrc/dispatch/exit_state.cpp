#include "dispatch/exit_state.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/PyInterpreter.h>

namespace alternator::dispatch {

using at::impl::PythonTorchFunctionTLS;

ExitState::ExitState(const trace::ThreadStateAtExit& at_exit, const graph::Ambient& at_entry)
    : casts_(at_exit.casts),
      autocast_nesting_(at_exit.autocast_nesting),
      clears_casts_(at_exit.clears_casts),
      popped_modes_(at_exit.popped_modes),
      pushed_modes_(at_exit.pushed_modes.size()) {
  if (!(at_exit.ambient == at_entry)) ambient_ = at_exit.ambient;
}

ExitState::OpenScopes::OpenScopes(const ExitState& state) : count_(state.autocast_nesting_) {
  if (count_ > 0) fake::set_autocast_nesting(fake::autocast_nesting() + count_);
}

ExitState::OpenScopes::~OpenScopes() {
  if (count_ > 0) fake::set_autocast_nesting(fake::autocast_nesting() - count_);
}

void ExitState::drop_casts() const {
  if (clears_casts_ && fake::autocast_nesting() == 0) at::autocast::clear_cache();
}

void ExitState::apply(OpenScopes& scopes, replay::Residual::Results& results) const {
  if (ambient_) ambient_->apply();
  if (casts_) casts_->apply();
  scopes.keep();
  if (autocast_nesting_ < 0) fake::set_autocast_nesting(fake::autocast_nesting() + autocast_nesting_);
  for (size_t i = 0; i < popped_modes_; i++) PythonTorchFunctionTLS::pop_stack();
  for (size_t i = results.size() - pushed_modes_; i < results.size(); i++)
    PythonTorchFunctionTLS::push_onto_stack(
        std::make_shared<c10::SafePyObject>(results[i].release(), getPyInterpreter()));
}

}  // namespace alternator::dispatch
