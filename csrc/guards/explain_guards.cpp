// Descriptions of failed guards.
#include "guards/guard_mutants.h"
#include "guards/guard_program.h"

#include <algorithm>
#include <cstring>
#include <sstream>

namespace alternator::guards {

using lift::GuardKind;

namespace {

std::string utf8(PyObject* text) {
  const char* bytes = PyUnicode_AsUTF8(text);
  if (bytes == nullptr) PyErr_Clear();
  return bytes != nullptr ? bytes : "?";
}

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

std::string wanted_text(const Check& check, PyObject* found) {
  switch (check.kind) {
    case GuardKind::kTensor:
      if (found != nullptr && lift::is_tensor(found)) return check.tensor->text_against(lift::describe_tensor(found));
      return check.tensor->text();
    case GuardKind::kLength:
      return std::to_string(check.number);
    case GuardKind::kTruth:
      return check.number != 0 ? "not empty" : "empty";
    case GuardKind::kSetLayout:
    case GuardKind::kUnobserved:
      return {};
    case GuardKind::kKeys:
      return check.label;
    case GuardKind::kSpecialMethods:
      return found != nullptr ? lift::show(found) : "the class";
    case GuardKind::kEquals:
      if (check.second.get() != nullptr) {
        return "a " + lift::show(check.second.get()) + " of " + lift::show(check.object);
      }
      return lift::show(check.object);
    default:
      return pinned(check.first, check.label);
  }
}

std::string got_text(const Check& check, lift::Access access, PyObject* found) {
  switch (check.kind) {
    case GuardKind::kType:
      return lift::is_stand_in(access, found) ? "dict" : lift::show(reinterpret_cast<PyObject*>(Py_TYPE(found)));
    case GuardKind::kTensor:
      return lift::is_tensor(found) ? lift::describe_tensor(found).text_against(*check.tensor) : lift::show(found);
    case GuardKind::kLength: {
      const Py_ssize_t length =
          lift::is_stand_in(access, found) ? lift::attribute_count(found) : lift::container_length(found);
      return length >= 0 ? std::to_string(length) : "that of " + lift::show(found);
    }
    case GuardKind::kTruth:
      return check.number != 0 ? "empty" : "not empty";
    case GuardKind::kKeys:
      return keys_text(found, access);
    case GuardKind::kCode:
      return lift::show(PyFunction_Check(found) ? PyFunction_GET_CODE(found) : found);
    default:
      return lift::show(found);
  }
}

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

// TorchDynamo's literal wording, with its unbalanced quotation mark.
std::string dynamo_message(const Check& check, PyObject* found, const std::string& source) {
  if (check.kind != GuardKind::kTensor) return {};
  if (!lift::is_tensor(found)) {
    return "; expected type of '" + source + "' to be a tensor type, ' but found <class '" +
           lift::show(reinterpret_cast<PyObject*>(Py_TYPE(found))) + "'>";
  }
  const std::string message = dynamo_mismatch(*check.tensor, lift::describe_tensor(found));
  return message.empty() ? message : "; tensor '" + source + "' " + message;
}

// Substitutes %w and %g. Without `got`, the sentence ends before ", not %g".
std::string fill(const char* sentence, const std::string& wanted, const std::string* got) {
  std::string text;
  for (const char* c = sentence; *c != 0; c++) {
    if (got == nullptr && std::strncmp(c, ", not %g", 8) == 0) {
      c += 7;
    } else if (c[0] == '%' && c[1] == 'w') {
      text += wanted;
      c++;
    } else if (c[0] == '%' && c[1] == 'g') {
      text += *got;
      c++;
    } else {
      text += *c;
    }
  }
  return text;
}

void name_site(const lift::Site& site, Explanation* result) {
  if (!site.code) return;
  auto* code = site.code.as<PyCodeObject>();
  result->file = utf8(code->co_filename);
  result->function = utf8(code->co_qualname);
  result->line = PyCode_Addr2Line(code, site.index * static_cast<int>(sizeof(uint16_t)));
  if (result->line < 0) result->line = code->co_firstlineno;  // an instruction without a line
}

}  // namespace

std::string Explanation::text() const {
  std::string text = source.empty() ? sentence : source + ": " + sentence;
  if (!file.empty()) text += " (" + file + ":" + std::to_string(line) + ", in " + function + ")";
  return text;
}

// `roots`: found_ is of a walk that failed just now, and may be read.
Explanation GuardProgram::explain_failure(const Roots* roots) const {
  SavedError saved;
  Explanation result;
  auto at_node = [&](uint32_t node) { result.source = nodes_[node].source->text(); };
  switch (failure_.kind) {
    case Failure::Kind::kNone:
      break;
    case Failure::Kind::kAmbient:
      result.kind = "ambient";
      result.sentence = ambient_.mismatch();
      if (result.sentence.empty()) result.sentence = "the state around the call was not as it is now";
      break;
    case Failure::Kind::kMissing: {
      result.kind = "missing";
      at_node(failure_.index);
      const Node& node = nodes_[failure_.index];
      result.sentence = node.absent != kNone ? "whether it is there cannot be told" : "it is not there";
      // The line of the first guard that needed it.
      for (uint32_t i = failure_.index; i < node.end; i++) {
        if (nodes_[i].first_check == nodes_[i].last_check) continue;
        name_site(tree_->site(checks_[nodes_[i].first_check].site), &result);
        break;
      }
      break;
    }
    case Failure::Kind::kCheck: {
      const Check& check = checks_[failure_.index];
      PyObject* found = roots != nullptr ? found_[check.node] : nullptr;
      result.kind = name_of(check.kind);
      at_node(check.node);
      if (found != nullptr) {
        result.got = got_text(check, nodes_[check.node].step.access, found);
        result.wanted = wanted_text(check, found);
        result.sentence = fill(sentence_of(check.kind), result.wanted, &result.got);
        result.sentence += dynamo_message(check, found, result.source);
      } else {
        result.wanted = wanted_text(check, nullptr);
        result.sentence = fill(sentence_of(check.kind), result.wanted, nullptr);
      }
      name_site(tree_->site(check.site), &result);
      break;
    }
    case Failure::Kind::kRelation: {
      const Relation& relation = relations_[failure_.index];
      const GuardKind kind = relation.same ? GuardKind::kSame : GuardKind::kDistinct;
      result.kind = name_of(kind);
      at_node(relation.left);
      result.sentence = fill(sentence_of(kind), nodes_[relation.right].source->text(), nullptr);
      name_site(tree_->site(relation.site), &result);
      break;
    }
    case Failure::Kind::kIdentity:
      result.kind = "identity";
      at_node(failure_.index);
      result.sentence = fill(sentence_of(GuardKind::kDistinct), nodes_[failure_.other].source->text(), nullptr);
      break;
  }
  return result;
}

Explanation GuardProgram::explain(const Roots& roots) {
  failure_ = {};
  if (!ambient_.matches()) {
    fail(Failure::Kind::kAmbient, 0);
  } else {
    (void)check_by_walking(roots);
  }
  Explanation result = explain_failure(&roots);
  release_owned();
  return result;
}

std::vector<Explanation> GuardProgram::all() const {
  SavedError saved;
  std::vector<Explanation> guards;
  auto add = [&](uint32_t node, GuardKind kind, std::string wanted, uint32_t site) {
    Explanation& line = guards.emplace_back();
    line.source = nodes_[node].source->text();
    line.kind = name_of(kind);
    if (std::strstr(sentence_of(kind), "%w") != nullptr) line.wanted = std::move(wanted);
    line.sentence = fill(sentence_of(kind), line.wanted, nullptr);
    name_site(tree_->site(site), &line);
  };
  for (const Check& check : checks_) add(check.node, check.kind, wanted_text(check, nullptr), check.site);
  for (const Relation& relation : relations_) {
    add(relation.left, relation.same ? GuardKind::kSame : GuardKind::kDistinct, nodes_[relation.right].source->text(),
        relation.site);
  }
  if (identities_.size() > 1) {
    std::string all;
    for (uint32_t node : identities_) all += (all.empty() ? "" : ", ") + nodes_[node].source->text();
    Explanation& line = guards.emplace_back();
    line.kind = "identity";
    line.sentence = "different objects: " + all;
  }
  for (const std::string& text : ambient_.texts()) {
    Explanation& line = guards.emplace_back();
    line.kind = "ambient";
    line.sentence = text;
  }
  return guards;
}

std::vector<std::string> GuardProgram::texts() const {
  std::vector<std::string> texts;
  for (const Explanation& guard : all()) texts.push_back(guard.text());
  return texts;
}

}  // namespace alternator::guards
