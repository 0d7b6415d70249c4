// Numbers and sizes over backed symbols (fake/backed_symbols.h) in a recording.
#include "graph/record/recorder.h"

#include "graph/record/torch_types.h"
#include "py/lasting.h"
#include "shapes/expression_text.h"

namespace alternator::graph {

void Recorder::use_backed(std::shared_ptr<fake::BackedSymbols> symbols) {
  ALT_CHECK(part_ == nullptr, "a symbol is made inside of a part");
  backed_ = std::move(symbols);
  program_->backed = backed_;
}

void Recorder::note_geometry(const at::Tensor& fake, fake::SymbolicGeometry geometry) {
  ALT_CHECK(part_ == nullptr, "a size varies inside of a part");
  TensorRecord& record = program_->tensors[known_.at(fake.unsafeGetTensorImpl())];
  record.varies = true;
  program_->declared[record.index].geometry = std::move(geometry);
}

// A subgraph takes tensors only: its numbers are constants of the graph.
void Recorder::prepare(Borrowed number) {
  if (backed_ && part_ != nullptr) backed_->specialize(number);
}

// Of a tensor of the whole program. In a part nothing varies.
void Recorder::Part::specialize(const at::Tensor& tensor) {
  Part* whole = this;
  while (whole->outer_ != nullptr) whole = whole->outer_;
  const auto found = whole->known_.find(tensor.unsafeGetTensorImpl());
  if (found != whole->known_.end() && whole->program_->tensors[found->second].varies)
    recorder_.on_enters_part(found->second);
}

// An input of the program, whose value the guards compute.
uint32_t Recorder::number_id(Borrowed number, shapes::Expression expression) {
  expression = backed_->environment.simplify(expression);
  const auto [found, added] = numbers_.emplace(expression, static_cast<uint32_t>(program_->tensors.size()));
  if (!added) return found->second;
  const uint32_t position = static_cast<uint32_t>(program_->declared.size());
  program_->tensors.push_back({at::Tensor(), Origin::Input, position, Ref::share(number), {}, expression});
  const std::string label = shapes::text(expression);
  Ref text = checked(PyUnicode_FromStringAndSize(label.data(), static_cast<Py_ssize_t>(label.size())));
  program_->declared.push_back({found->second, std::move(text), Ref::share(Py_None), {}, nullptr, {}});
  program_->declared.back().number = expression;
  return found->second;
}

// The sizes of a tensor as the elements of another, whose value is known.
static bool makes_tensor_of_sizes(const Node& node) {
  static constinit Lasting<Ref> function;
  return Borrowed(node.function()) == function.get([] { return torch_name("torch", "_shape_as_tensor"); });
}

// The values of results are not known while tracing: their sizes differ from call to call.
Ref Recorder::vary(const Node& node, Ref result, uint32_t made) {
  if (makes_tensor_of_sizes(node) && on_fixed_sizes) {
    on_fixed_sizes(node);
    return result;
  }
  for (size_t id = made; id < program_->tensors.size(); id++) {
    TensorRecord& record = program_->tensors[id];
    if (record.is_symbol()) continue;
    record.varies = record.fake.dim() > 0;
    session_.forget_value(record.fake);
  }
  return on_varying ? on_varying(node, std::move(result), made) : std::move(result);
}

}  // namespace alternator::graph
