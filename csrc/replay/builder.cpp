#include "replay/builder.h"

#include "lift/sources/plain.h"
#include "replay/replay_mutants.h"
#include "replay/tensors.h"

#include <algorithm>
#include <functional>
#include <unordered_set>
#include <utility>

namespace alternator::replay {

// Objects that must be complete before others are made (tuples in tuples, methods of methods) are made by recursion.
static constexpr int kDeepest = 2000;
static constexpr int kDeepestConstant = 16;

Builder::Builder(World& world, std::vector<Ref>* graph_outputs, std::vector<lift::Source*>* needed)
    : world_(world), graph_outputs_(graph_outputs), needed_(needed) {
  for (const lift::Source* source : *needed_) needed_positions_.try_emplace(source, needed_positions_.size());
}

Operand Builder::needed(lift::Source* source) {
  if (source->access == lift::Access::kConstant) return constant(source->key);
  auto [found, added] = needed_positions_.try_emplace(source, static_cast<uint32_t>(needed_->size()));
  if (added) needed_->push_back(source);
  return Operand::of(Space::kNeeded, found->second);
}

// Small ints are one object each. One that a trace has specialized on is another object.
static Ref shared_int(Borrowed object) {
  if (!PyLong_CheckExact(object.get())) return Ref::share(object);
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(object.get(), &overflow);
  const bool is_small = overflow == 0 && value >= -5 && value <= 256;
  return is_small ? checked(PyLong_FromLong(value)) : Ref::share(object);
}

Operand Builder::constant(Borrowed given) {
  const Ref shared = shared_int(given);
  const Borrowed object = shared;
  auto [found, added] = constants_.try_emplace(object.get(), static_cast<uint32_t>(program_.constants.size()));
  if (added && PyFunction_Check(object.get())) {
    // The class that it was found on owns it, and may drop it: a weak reference of the user would observe that.
    program_.weak.push_back(found->second);
    program_.constants.push_back(checked(PyWeakref_NewRef(object.get(), nullptr)));
  } else if (added) {
    program_.constants.push_back(Ref::share(object));
  }
  return Operand::of(Space::kConstant, found->second);
}

uint32_t Builder::native(PyMethodDef* method) {
  program_.natives.push_back(method);
  return static_cast<uint32_t>(program_.natives.size() - 1);
}

void Builder::take_as_preexisting(Borrowed object) {
  if (is_known(object)) return;
  held_.push_back(Ref::share(object));
  known_[object.get()] = constant(object);
}

bool Builder::is_known(Borrowed object) {
  return known_.count(object.get()) != 0 || dict_owners_.count(object.get()) != 0 ||
         world_.source_of(object) != nullptr;
}

bool Builder::is_traced(Borrowed object) {
  return world_.made_here(object) || is_symbol(object) ||
         ((is_generator(object) || world_.is_graph_array(object)) && world_.source_of(object) == nullptr) ||
         (is_tensor(object) && world_.is_graph_tensor(object));
}

void Builder::own_dict(Borrowed dict, Borrowed owner) {
  held_.push_back(Ref::share(dict));
  held_.push_back(Ref::share(owner));
  dict_owners_[dict.get()] = owner.get();
}

// Deeply immutable, and the same object in every call: not a tuple that the call made, which is a new one each time.
bool Builder::is_constant(Borrowed object, int depth) {
  PyObject* o = object.get();
  if (world_.is_constant(object)) return true;
  if (PyType_Check(o)) return !world_.made_here(object);
  const bool is_made = (PyTuple_CheckExact(o) && PyTuple_GET_SIZE(o) > 0) || PyFrozenSet_CheckExact(o);
  if (depth == 0 && is_made && !world_.is_code_constant(object)) return false;
  // A NaN is found again only by identity: one that the call makes is new each time.
  if (PyFloat_CheckExact(o) && lift::is_nan(o) && !world_.is_code_constant(object)) return false;
  if (lift::is_plain(o)) return !world_.made_here(object.type());
  if (depth > kDeepestConstant || world_.source_of(object) != nullptr) return false;
  if (PyTuple_CheckExact(o)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) {
      if (!is_constant(PyTuple_GET_ITEM(o, i), depth + 1)) return false;
    }
    return true;
  }
  if (PyFrozenSet_CheckExact(o)) {
    PyObject* element;
    Py_hash_t hash;
    for (Py_ssize_t position = 0; _PySet_NextEntry(o, &position, &element, &hash) != 0;) {
      if (!is_constant(element, depth + 1)) return false;
    }
    return true;
  }
  return false;
}

bool Builder::is_leaf(Borrowed object) {
  return !object || known_.count(object.get()) != 0 || world_.source_of(object) != nullptr || is_constant(object) ||
         is_tensor(object) || is_symbol(object) || is_generator(object) || world_.is_graph_array(object);
}

Operand Builder::value(Borrowed object) {
  if (!object) return Operand::of(Space::kNothing, 0);
  if (auto found = known_.find(object.get()); found != known_.end()) return found->second;
  held_.push_back(Ref::share(object));
  if (auto owned = dict_owners_.find(object.get()); owned != dict_owners_.end()) {
    const Operand owner = value(owned->second);
    const Operand dict = Operand::of(Space::kMade, program_.registers++);
    emit(Op::kInstanceDict, {owner});
    program_.instructions.back().target = dict.index();
    return known_[object.get()] = dict;
  }
  Operand operand;
  if (lift::Source* source = world_.source_of(object)) {
    operand = needed(source);
  } else if (is_constant(object)) {
    operand = constant(object);
  } else if (is_tensor(object)) {
    return tensor(object);
  } else if (is_generator(object) || world_.is_graph_array(object)) {
    operand = Operand::of(Space::kOutput, graph_outputs_->size());
    graph_outputs_->push_back(Ref::share(object));
  } else if (const std::optional<uint32_t> number = is_symbol(object) ? world_.number_of(object) : std::nullopt) {
    operand = Operand::of(Space::kNumber, *number);
  } else if (is_symbol(object)) {
    const Operand output = Operand::of(Space::kOutput, graph_outputs_->size());
    graph_outputs_->push_back(Ref::share(object));
    // A compiler may have folded it to 0, and return an int for a float.
    const Operand type = value(class_of_symbol(object));
    operand = Operand::of(Space::kMade, program_.registers++);
    emit(Op::kCall, {type, output});
    program_.instructions.back().target = operand.index();
  } else {
    return make(object);
  }
  return known_[object.get()] = operand;
}

Operand Builder::tensor(Borrowed object) {
  if (!world_.is_graph_tensor(object)) {
    throw CannotRebuild("a real tensor that no source leads to is in the result");
  }
  Operand operand = Operand::of(Space::kOutput, graph_outputs_->size());
  graph_outputs_->push_back(Ref::share(object));
  const TensorTraits traits = tensor_traits(object);
  if (!traits.plain_type || traits.wants_gradient) {
    const Operand type = value(object.type());
    const Operand fixed = Operand::of(Space::kMade, program_.registers++);
    emit(Op::kTensor, {operand, type}, traits.wants_gradient ? 1 : 0);
    program_.instructions.back().target = fixed.index();
    operand = fixed;
  }
  known_[object.get()] = operand;
  if (is_disabled("tensor_attributes")) return operand;
  Recipe attributes;
  add_attributes(*this, attributes, object);
  for (Step& step : attributes.fill) open_.push_back({operand, std::move(step), early_});
  return operand;
}

// A list of simple values is made and filled in one step.
void Builder::merge_filling(Recipe& recipe) {
  if (recipe.fill.size() != 1 || recipe.fill[0].hashes || !recipe.make.operands.empty()) return;
  Step& fill = recipe.fill[0];
  const bool fits = (recipe.make.op == Op::kList && fill.op == Op::kExtend) ||
                    (recipe.make.op == Op::kDict && fill.op == Op::kUpdate) ||
                    (recipe.make.op == Op::kSet && fill.op == Op::kAdd);
  if (!fits) return;
  for (const Ref& operand : fill.operands) {
    if (!is_leaf(operand)) return;
  }
  recipe.make.operands = std::move(fill.operands);
  recipe.make.number = fill.number;
  recipe.fill.clear();
}

Operand Builder::make(Borrowed object) {
  if (depth_ >= kDeepest) throw CannotRebuild("objects are nested too deeply to be reconstructed");
  if (!making_.insert(object.get()).second) {
    cannot_rebuild(object, "it is part of a cycle that cannot be made step by step");
  }
  depth_++;
  const char* kind = "";
  Recipe recipe = describe(*this, object, &kind);
  // With its row switched off, a kept object could not be returned at all.
  if (recipe.keep && is_disabled(kind)) cannot_rebuild(object, "its row is switched off");
  if (recipe.keep || is_disabled(kind)) {
    making_.erase(object.get());
    depth_--;
    return known_[object.get()] = constant(object);
  }
  merge_filling(recipe);
  std::vector<Operand> operands;
  operands.reserve(recipe.make.operands.size());
  for (const Ref& operand : recipe.make.operands) operands.push_back(value(operand));
  if (recipe.make.hashes) complete();
  const Operand made = Operand::of(Space::kMade, program_.registers++);
  emit(recipe.make.op, operands, recipe.make.number);
  program_.instructions.back().target = made.index();
  known_[object.get()] = made;
  making_.erase(object.get());
  depth_--;
  for (Step& step : recipe.fill) open_.push_back({made, std::move(step), early_});
  return made;
}

void Builder::emit(Op op, const std::vector<Operand>& operands, int64_t number) {
  Instruction instruction{op};
  instruction.first = static_cast<uint32_t>(program_.operands.size());
  instruction.count = static_cast<uint32_t>(operands.size());
  instruction.number = number;
  program_.operands.insert(program_.operands.end(), operands.begin(), operands.end());
  program_.instructions.push_back(instruction);
}

void Builder::fill(const Open& open) {
  const Step& step = open.step;
  if (is_disabled(name_of(step.op))) return;
  std::vector<Operand> operands{open.object};
  const bool early = std::exchange(early_, open.early);
  for (const Ref& operand : step.operands) operands.push_back(value(operand));
  early_ = early;
  if (step.last) {
    last_.push_back({step.op, std::move(operands), step.number});
  } else if (step.hashes) {
    hashing_.push_back({step.op, std::move(operands), step.number, open.early});
  } else {
    emit(step.op, operands, step.number);
  }
}

// A container found later is nested deeper: its contents may decide the hash of a key found earlier. A frozenset that
// is a key itself, or in a tuple that is one, is filled first in any case.
void Builder::emit_hashing(bool early_only) {
  std::unordered_map<uint32_t, std::vector<Ready*>> waiting;  // by the register of the container to be filled
  for (Ready& ready : hashing_) waiting[ready.operands[0].bits].push_back(&ready);
  std::unordered_set<Ready*> begun;
  std::function<void(Ready&)> emit_one;
  std::function<void(Operand)> emit_key = [&](Operand key) {
    if (key.space() != Space::kMade) return;
    if (auto found = waiting.find(key.bits); found != waiting.end()) {
      for (Ready* ready : found->second) emit_one(*ready);
      return;
    }
    auto makes_key = [&](const Instruction& made) { return made.op == Op::kTuple && made.target == key.index(); };
    auto made = std::ranges::find_if(program_.instructions, makes_key);
    if (made == program_.instructions.end()) return;
    const std::vector<Operand> parts(program_.operands_of(*made), program_.operands_of(*made) + made->count);
    for (const Operand part : parts) emit_key(part);
  };
  emit_one = [&](Ready& ready) {
    if (!begun.insert(&ready).second) return;
    const size_t step = ready.op == Op::kUpdate || ready.op == Op::kUpdateOrdered ? 2 : 1;
    for (size_t i = 1; i < ready.operands.size(); i += step) emit_key(ready.operands[i]);
    emit(ready.op, ready.operands, ready.number);
  };
  for (auto ready = hashing_.rbegin(); ready != hashing_.rend(); ++ready) {
    if (ready->early || !early_only) emit_one(*ready);
  }
  std::vector<Ready> later;
  for (Ready& ready : hashing_) {
    if (begun.count(&ready) == 0) later.push_back(std::move(ready));
  }
  hashing_ = std::move(later);
}

void Builder::complete_most() {
  while (!open_.empty()) {
    const Open next = std::move(open_.front());
    open_.pop_front();
    fill(next);
  }
  emit_hashing(true);
  if (hashing_.empty()) complete();
}

void Builder::complete() {
  while (!open_.empty()) {
    const Open next = std::move(open_.front());
    open_.pop_front();
    fill(next);
  }
  emit_hashing(false);
  for (const Ready& ready : last_) emit(ready.op, ready.operands, ready.number);
  last_.clear();
}

Program Builder::finish(std::vector<Operand> results) {
  program_.results = std::move(results);
  program_.outputs = static_cast<uint32_t>(graph_outputs_->size());
  for (const lift::Source* source : *needed_) program_.needed_texts.push_back(source->text());
  return std::move(program_);
}

}  // namespace alternator::replay
