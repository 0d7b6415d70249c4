// Sizes and numbers of pre-existing values that become backed symbols of the trace (fake/backed_symbols.h).
#pragma once

#include "fake/backed_symbols.h"
#include "lift/lifting/dynamism.h"
#include "lift/sources/dimension_marks.h"
#include "lift/sources/source.h"
#include "lift/sources/tensor_spec.h"

#include <functional>
#include <memory>

namespace alternator::lift {

class Lifter;

// A size that was marked as dynamic, and cannot be a symbol.
struct UnmetMark {
  const Source* source;
  uint16_t dimension;
  int64_t size;
  WhySymbol why;
  std::string reason;
  Site site;  // the instruction that needs a constant, where one is known
};

class SymbolicInputs {
 public:
  explicit SymbolicInputs(Lifter& lifter) : lifter_(lifter) {}

  const Dynamism* dynamism = nullptr;            // null: everything is specialized on
  std::function<bool()> is_allowed;              // false: at this point of the trace only constants may be made
  std::function<void()> on_first_symbol;         // called when `symbols` is made
  std::shared_ptr<fake::BackedSymbols> symbols;  // null: there are none yet
  std::vector<WhySymbol> why;                    // by symbol
  std::vector<char> has_range;                   // by symbol: a mark gives one
  std::vector<UnmetMark> unmet;

  // Other values than those of the call, by the number of the symbol; null: those of the call.
  const std::vector<shapes::Register>* hints = nullptr;

  // Of a tensor that is lifted; its spec leaves free what is a symbol. Empty: all are constants.
  fake::SymbolicGeometry geometry_of(Borrowed tensor, Source* source, TensorSpec* spec);
  // With `hints`: gives the fake of such a tensor the geometry that follows from them.
  void apply_hints(const at::Tensor& fake, const fake::SymbolicGeometry& geometry) const;
  // Whether a part of a tuple becomes a symbol: then the trace needs a copy of it.
  bool will_hold_numbers(Borrowed tuple, Source* source, int depth = 0) const;
  // Null: the number is a constant of the trace.
  Ref number(Borrowed value, Source* source);

 private:
  // For each dimension.
  struct Wanted {
    uint64_t by_text = 0, continued = 0, all = 0, named = 0, fixed = 0, given_up = 0, specified = 0;
    uint64_t layout = 0, fixed_layout = 0;  // strides that follow from no size, and kOffsetBit
    DimensionMarks marks;
    uint64_t bits() const;
    bool stride(size_t dimension, const TensorSpec& spec) const;
    WhySymbol why(size_t dimension) const;
  };
  Wanted wanted_dimensions(Borrowed tensor, const Source& source) const;
  void note_unmet(const Source& source, const Wanted& wanted, const TensorSpec& spec);
  void add_specified(const std::string& text, Wanted* wanted) const;
  WhySymbol why_wanted(Borrowed number, const Source& source) const;
  // Of a number that shapes_spec says is one; null: it does not.
  const shapes::Interval* specified_range(const std::string& text) const;
  shapes::Expression add_size(const Source& source, const Wanted& wanted, size_t dimension, int64_t hint);
  // The number of the next symbol, for that reason, and its hint: `hint` unless there are others.
  shapes::Register next_symbol(WhySymbol reason, shapes::Register hint);
  // Makes symbols of strides as `wanted`, and changes their rules.
  void add_strides(const Source& source, const Wanted& wanted, const TensorSpec& spec, StrideRules* rules,
                   fake::SymbolicGeometry* geometry);
  fake::BackedSymbols& make_symbols();
  shapes::Expression add(const fake::BackedSymbols::Origin& origin, int64_t hint, const shapes::Interval& given,
                         WhySymbol reason);

  Lifter& lifter_;
  // A size of the same value is taken to be equal (duck shaping), under a guard: by its hint.
  std::unordered_map<int64_t, shapes::Expression> by_size_;
  std::unordered_map<const Source*, Ref> numbers_;
};

// TorchDynamo's name of a source: "L['self'].layers[3].weight" for "self.layers[3].weight".
std::string dynamo_name(const Source& source, const std::string& text);

// A further guard on a tensor leaves the same sizes and strides free as the one that it has.
void keep_free_sizes(const Source& source, TensorSpec* spec);

}  // namespace alternator::lift
