#include "dispatch/dynamism_policy.h"

#include "dispatch/bind_arguments.h"
#include "dispatch/events.h"
#include "dispatch/shape_specs.h"
#include "fake/python_tensor.h"
#include "graph/record/torch_types.h"
#include "py/import.h"

#include <bit>
#include <regex>

namespace alternator::dispatch {

using lift::Dynamism;
using lift::WhySymbol;
using Reads = fake::BackedSymbols::Reads;

namespace {

// A symbol that so many traces in a row have specialized on is a constant from then on.
constexpr size_t kMostFixed = 3;

// alternator.config.dynamic_settings()
struct Settings {
  bool automatic = true, assumes_static = true, ints = true, floats = true, ignores_marks = false, ducks = true,
       parameters = false;
  std::vector<lift::DynamicSource> named;
};

lift::DynamicSource named_source(const char* pattern, int dimension) {
  lift::DynamicSource source;
  if (dimension >= 0 && dimension < 64) source.dimension = static_cast<uint16_t>(dimension);
  std::shared_ptr<std::regex> expression;
  try {
    expression = std::make_shared<std::regex>(pattern);
  } catch (const std::regex_error&) {
    // Then it is a name.
  }
  source.matches = [text = std::string(pattern), expression](const std::string& name) {
    return text == name ||
           (expression != nullptr && std::regex_search(name, *expression, std::regex_constants::match_continuous));
  };
  return source;
}

Settings read_settings() {
  Settings settings;
  Ref made = checked(PyObject_CallMethod(import_module("alternator.config").get(), "dynamic_settings", nullptr));
  int automatic, assumes_static, ints, floats, ignores_marks, ducks, parameters;
  PyObject* named;
  if (PyArg_ParseTuple(made.get(), "pppppppO!", &automatic, &assumes_static, &ints, &floats, &ignores_marks, &ducks,
                       &parameters, &PyList_Type, &named) == 0)
    throw PyError();
  settings.automatic = automatic != 0;
  settings.assumes_static = assumes_static != 0;
  settings.ints = ints != 0;
  settings.floats = floats != 0;
  settings.ignores_marks = ignores_marks != 0;
  settings.ducks = ducks != 0;
  settings.parameters = parameters != 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(named); i++) {
    const char* pattern;
    int dimension;
    if (PyArg_ParseTuple(PyList_GET_ITEM(named, i), "si", &pattern, &dimension) == 0) throw PyError();
    settings.named.push_back(named_source(pattern, dimension));
  }
  return settings;
}

}  // namespace

bool note_change(const Compilation& compilation, SharedCache& cache, const guards::Change& change) {
  if (!compilation.dynamic.value_or(true) || compilation.shapes_spec || !read_settings().automatic) return false;
  lift::Dynamism& known = cache.dynamism;
  bool is_new = false;
  if (change.kind == guards::Change::Kind::kSize) {
    uint64_t& sizes = known.sizes[change.source];
    uint64_t& layout = known.layouts[change.source];
    is_new = (change.dimensions & ~sizes) != 0 || (change.layout & ~layout) != 0;
    sizes |= change.dimensions;
    layout |= change.layout;
  } else {
    is_new = change.kind == guards::Change::Kind::kNumber && known.numbers.insert(change.source).second;
  }
  // What was specialized on because of a constant may be open now that this is none.
  if (is_new) {
    known.static_sizes.clear();
    known.static_layouts.clear();
    known.static_numbers.clear();
    cache.fixed.clear();
  }
  return is_new;
}

std::shared_ptr<const Dynamism> dynamism_of(const Compilation& compilation, const SharedCache& cache) {
  if (cache.dynamism.none) return nullptr;
  Settings settings = read_settings();
  auto made = std::make_shared<Dynamism>(cache.dynamism);
  made->all = compilation.dynamic.value_or(!settings.assumes_static);
  made->ints = settings.ints;
  made->floats = settings.floats;
  made->ducks = settings.ducks;
  made->parameters = settings.parameters;
  made->named = std::move(settings.named);
  if (compilation.shapes_spec) add_spec(compilation, made.get());
  return made;
}

void note_symbols(SharedCache& cache, Entry& entry) {
  std::shared_ptr<fake::BackedSymbols> symbols;
  if (!entry.eager_because) symbols = entry.graph.program().backed;
  for (size_t i = 0; i < entry.symbols.size(); i++) {
    lift::SymbolFate& fate = entry.symbols[i];
    // A compiler may have specialized, too.
    if (!fate.is_fixed && symbols != nullptr && i < symbols->count()) {
      const shapes::Kind kind = symbols->environment.simplify(symbols->environment.symbol(i))->kind;
      fate.is_fixed = kind == shapes::Kind::kInteger || kind == shapes::Kind::kFloat;
    }
    const std::string key = fate.text();
    if (!fate.is_fixed) {
      cache.fixed.erase(key);
    } else if (++cache.fixed[key] >= kMostFixed) {
      if (fate.reads == Reads::kSize)
        cache.dynamism.static_sizes[fate.source] |= uint64_t{1} << fate.dimension;
      else if (fate.is_of_tensor())
        cache.dynamism.static_layouts[fate.source] |= uint64_t{1} << fate.dimension;
      else
        cache.dynamism.static_numbers.insert(fate.source);
    }
  }
}

void carry_dynamism(const Entry& from, SharedCache& to) {
  for (const Entry::OpenValue& value : from.open_values) {
    if (value.sizes != 0)
      to.dynamism.value_sizes[value.position] |= value.sizes;
    else
      to.dynamism.value_numbers.insert(value.position);
  }
}

Limits limits_of(const Compilation& compilation) {
  Ref made = checked(PyObject_CallMethod(import_module("alternator.config").get(), "limits", nullptr));
  Py_ssize_t entries, total;
  int fails;
  if (PyArg_ParseTuple(made.get(), "nnp", &entries, &total, &fails) == 0) throw PyError();
  return {compilation.most_entries.value_or(static_cast<size_t>(entries)), static_cast<size_t>(total), fails != 0};
}

void check_marks(const Compilation& compilation, const Entry& entry) {
  std::vector<const lift::SymbolFate*> violated;
  for (const lift::SymbolFate& fate : entry.symbols) {
    if (fate.why == WhySymbol::kMark && (fate.is_fixed ? PyLong_AsLongLong(fate.hint.get()) > 1 : fate.is_narrowed()))
      violated.push_back(&fate);
  }
  if (!violated.empty() && !read_settings().ignores_marks) raise_violation(compilation, violated);
}

FirstCall describe_call(Borrowed function, const std::vector<Ref>& slots) {
  FirstCall call;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
  for (size_t i = 0; i < slots.size(); i++) {
    PyObject* value = slots[i].get();
    if (value == nullptr) continue;
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(code->co_localsplusnames, static_cast<Py_ssize_t>(i)));
    if (name == nullptr) throw PyError();
    if (graph::is_tensor(value)) {
      const c10::TensorImpl* impl = fake::unpack(value).unsafeGetTensorImpl();
      const bool has_sizes = impl->layout() == c10::kStrided && !impl->has_symbolic_sizes_strides() &&
                             !impl->key_set().has(c10::DispatchKey::NestedTensor);
      if (has_sizes) call.sizes[name] = impl->sizes().vec();
    } else if (PyLong_CheckExact(value)) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
      if (overflow == 0) call.numbers[name] = {false, number};
    } else if (PyFloat_CheckExact(value)) {
      call.numbers[name] = {true, std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(value))};
    }
  }
  return call;
}

void note_first_call(Compilation& compilation, PyObject* const* arguments, size_t positional, PyObject* keyword_names) {
  std::vector<Ref> slots;
  try {
    if (bind_arguments(compilation.function, arguments, positional, keyword_names, &slots))
      compilation.first_call = std::make_shared<const FirstCall>(describe_call(compilation.function, slots));
  } catch (const PyError&) {
    PyErr_Clear();  // the call itself will raise it
  }
}

void note_difference(SharedCache& cache, const FirstCall& first, const FirstCall& now) {
  for (const auto& [name, sizes] : first.sizes) {
    const auto found = now.sizes.find(name);
    if (found == now.sizes.end() || found->second.size() != sizes.size()) continue;
    for (size_t d = 0; d < std::min<size_t>(sizes.size(), 64); d++) {
      if (sizes[d] != found->second[d]) cache.dynamism.sizes[name] |= uint64_t{1} << d;
    }
  }
  for (const auto& [name, number] : first.numbers) {
    const auto found = now.numbers.find(name);
    if (found != now.numbers.end() && found->second.is_float == number.is_float && found->second != number)
      cache.dynamism.numbers.insert(name);
  }
}

}  // namespace alternator::dispatch
