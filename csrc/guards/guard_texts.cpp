#include "guards/guard_texts.h"

#include <algorithm>
#include <sstream>

namespace alternator::guards {

using lift::Access;
using lift::GuardKind;

namespace {

std::string pinned(const Pin& pin, const std::string& label) {
  PyObject* object = pin.get();
  return object != nullptr ? lift::show(object) : label + " (which is gone)";
}

std::string keys_text(PyObject* found, lift::Access access) {
  Ref keys = checked(PyList_New(0));
  Py_ssize_t position = 0;
  PyObject *key, *value;
  if (lift::is_stand_in(access, found)) {
    while (lift::next_attribute(found, &position, &key, &value)) check_status(PyList_Append(keys.get(), key));
  } else if (PyDict_Check(found)) {
    lift::Memo memo;
    Ref owner;
    for (lift::Step step{lift::Access::kKey};; step.index++) {
      if (lift::take(step, found, &key, &owner, &memo) != lift::Found::kYes) break;
      check_status(PyList_Append(keys.get(), key));
    }
  } else {
    return lift::show(found);
  }
  Ref tuple = checked(PyList_AsTuple(keys.get()));
  return lift::show(tuple.get(), 200);
}

// --- the text column of guards.def -----------------------------------------------------------------------------------

struct ObjectText {
  static std::string wanted(const Check& check, PyObject*) { return pinned(check.first, check.label); }
  static std::string got(const Check&, Access, PyObject* found) { return lift::show(found); }
};

struct TypeText : ObjectText {
  static std::string got(const Check&, Access access, PyObject* found) {
    return lift::is_stand_in(access, found) ? "dict" : lift::show(reinterpret_cast<PyObject*>(Py_TYPE(found)));
  }
};

struct ValueText : ObjectText {
  static std::string wanted(const Check& check, PyObject*) {
    if (PyObject* type = check.second.get()) return "a " + lift::show(type) + " of " + lift::show(check.object);
    return lift::show(check.object);
  }
};

struct CodeText : ObjectText {
  static std::string got(const Check&, Access, PyObject* found) {
    return lift::show(PyFunction_Check(found) ? PyFunction_GET_CODE(found) : found);
  }
};

// The sentence names no expected value.
struct NoText : ObjectText {
  static std::string wanted(const Check&, PyObject*) { return {}; }
};

struct LengthText {
  static std::string wanted(const Check& check, PyObject*) { return std::to_string(check.number); }
  static std::string got(const Check&, Access access, PyObject* found) {
    const Py_ssize_t length =
        lift::is_stand_in(access, found) ? lift::attribute_count(found) : lift::container_length(found);
    return length >= 0 ? std::to_string(length) : "that of " + lift::show(found);
  }
};

struct TruthText {
  static std::string wanted(const Check& check, PyObject*) { return check.number != 0 ? "not empty" : "empty"; }
  static std::string got(const Check& check, Access, PyObject*) { return check.number != 0 ? "empty" : "not empty"; }
};

struct KeysText {
  static std::string wanted(const Check& check, PyObject*) { return check.label; }
  static std::string got(const Check&, Access access, PyObject* found) { return keys_text(found, access); }
};

struct ClassText : ObjectText {
  static std::string wanted(const Check&, PyObject* found) {
    return found != nullptr ? lift::show(found) : "the class";
  }
};

struct TensorText {
  static std::string wanted(const Check& check, PyObject* found) {
    if (found != nullptr && lift::is_tensor(found)) return check.tensor->text_against(lift::describe_tensor(found));
    return check.tensor->text();
  }
  static std::string got(const Check& check, Access, PyObject* found) {
    return lift::is_tensor(found) ? lift::describe_tensor(found).text_against(*check.tensor) : lift::show(found);
  }
};

// TorchDynamo's message for a tensor mismatch, for users who search logs for it: the first difference. Empty:
// TorchDynamo has no message for it.
std::string dynamo_mismatch(const lift::TensorSpec& wanted, const lift::TensorSpec& got) {
  auto differ = [](const std::string& what, const auto& left, const auto& right) {
    std::ostringstream text;
    text << what << " mismatch. expected " << left << ", actual " << right;
    return text.str();
  };
  auto at_index = [](const char* what, const std::vector<int64_t>& left, const std::vector<int64_t>& right) {
    const auto [one, other] = std::mismatch(left.begin(), left.end(), right.begin());
    return std::string(what) + " mismatch at index " + std::to_string(one - left.begin()) + ". expected " +
           std::to_string(*one) + ", actual " + std::to_string(*other);
  };
  if (wanted.keys != got.keys) return differ("dispatch key set", wanted.keys, got.keys);
  if (wanted.dtype != got.dtype) return differ("dtype", wanted.dtype, got.dtype);
  if (wanted.device != got.device) return differ("device", wanted.device, got.device);
  if (wanted.requires_grad != got.requires_grad)
    return wanted.requires_grad ? "requires_grad mismatch. expected requires_grad=1"
                                : "requires_grad mismatch. expected requires_grad=0";
  if (!wanted.has_geometry || !got.has_geometry) return {};
  if (wanted.sizes.size() != got.sizes.size()) return differ("rank", wanted.sizes.size(), got.sizes.size());
  if (wanted.sizes != got.sizes) return at_index("size", wanted.sizes, got.sizes);
  if (wanted.strides != got.strides) return at_index("stride", wanted.strides, got.strides);
  return {};
}

}  // namespace

std::string wanted_text(const Check& check, PyObject* found) {
  switch (check.kind) {
#define ALT_GUARD(kind, sentence, keeps, check_function, proof, text) \
  case GuardKind::kind:                                               \
    return text::wanted(check, found);
#include "lift/sources/guards.def"
#undef ALT_GUARD
  }
  return {};
}

std::string got_text(const Check& check, Access access, PyObject* found) {
  switch (check.kind) {
#define ALT_GUARD(kind, sentence, keeps, check_function, proof, text) \
  case GuardKind::kind:                                               \
    return text::got(check, access, found);
#include "lift/sources/guards.def"
#undef ALT_GUARD
  }
  return {};
}

// TorchDynamo's literal wording, with its unbalanced quotation mark.
std::string dynamo_message(const Check& check, PyObject* found, const std::string& source) {
  if (check.kind != GuardKind::kTensor) return {};
  if (!lift::is_tensor(found)) {
    return "; expected type of '" + source + "' to be a tensor type, ' but found <class '" +
           lift::show(reinterpret_cast<PyObject*>(Py_TYPE(found))) + "'>";
  }
  const std::string message = dynamo_mismatch(*check.tensor, lift::describe_tensor(found));
  if (message.empty()) return {};
  std::string text = "; tensor '" + source;
  text += "' ";
  text += message;
  return text;
}

}  // namespace alternator::guards
