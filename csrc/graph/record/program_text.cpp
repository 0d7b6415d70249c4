#include "graph/record/program_text.h"

#include "graph/record/node_effects.h"

#include <string_view>

namespace alternator::graph {
namespace {

std::string text_of(Borrowed object) {
  Ref text = Ref::steal(PyObject_Repr(object.get()));
  const char* chars = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (chars == nullptr) {
    PyErr_Clear();
    return "?";
  }
  constexpr size_t kLongest = 60;
  std::string result(chars);
  if (result.size() > kLongest) result.replace(kLongest, std::string::npos, "...");
  return result;
}

std::string tensor_name(const Program& program, uint32_t tensor) {
  const TensorRecord& record = program.tensors[tensor];
  const std::string number = std::to_string(record.index);
  switch (record.origin) {
    case Origin::Input:
      return "input" + number;
    case Origin::Result:
      return "%" + number;
    case Origin::Constant:
      return "constant" + number;
    case Origin::Element: {
      std::string path;
      for (uint32_t e = record.index; e != kWhole; e = program.elements[e].container)
        path = "[" + text_of(program.elements[e].key) + "]" + path;
      return "%" + std::to_string(program.elements[record.index].node) + path;
    }
  }
  return "?";
}

std::string value_text(const Program& program, Value value) {
  auto children = [&](uint32_t first, uint32_t count) {
    std::string text;
    for (uint32_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + value_text(program, program.arena[first + i]);
    return text;
  };
  switch (value.kind()) {
    case ValueKind::Tensor:
      return tensor_name(program, value.index);
    case ValueKind::Tuple:
      return "(" + children(value.index, value.count()) + (value.count() == 1 ? ",)" : ")");
    case ValueKind::List:
      return "[" + children(value.index, value.count()) + "]";
    case ValueKind::Slice:
      return "slice(" + children(value.index, 3) + ")";
    case ValueKind::Named:
      return value_text(program, program.arena[value.index]) + "(" + children(value.index + 1, value.count() - 1) + ")";
    case ValueKind::Dict: {
      std::string text;
      for (uint32_t i = 0; i < value.count(); ++i) {
        if (i != 0) text += ", ";
        text += value_text(program, program.arena[value.index + 2 * i]) + ": " +
                value_text(program, program.arena[value.index + 2 * i + 1]);
      }
      return "{" + text + "}";
    }
    default:
      return text_of(program.arena.object(value));
  }
}

std::string state_text(const Ambient& state) {
  std::string text = state.grad ? "grad" : "no_grad";
  if (state.inference) text += ", inference";
  for (size_t i = 0; i < kAutocastDevices; ++i)
    if (state.autocast[i].enabled)
      text += ", autocast " + c10::DeviceTypeName(at::autocast::_AUTOCAST_SUPPORTED_DEVICES[i], true) + " " +
              c10::toString(state.autocast[i].dtype);
  if (state.default_dtype != c10::ScalarType::Float)
    text += std::string(", default ") + c10::toString(state.default_dtype);
  return text;
}

std::string node_text(const Program& program, uint32_t number) {
  const Node& node = program.nodes[number];
  std::string text = "%" + std::to_string(number) + " = " + callable_name(node.callable) + "(";
  for (uint32_t i = 0; i < node.argument_count(); ++i) {
    if (i != 0) text += ", ";
    if (i >= node.positional) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(node.keyword_names.get(), i - node.positional));
      text += std::string(name == nullptr ? "?" : name) + "=";
    }
    text += value_text(program, program.argument(node, i));
  }
  text += ")";
  if (node.site != kNowhere) {
    const SiteTable::Site& site = program.sites[node.site];
    const char* file = PyUnicode_AsUTF8(program.sites.code(site).as<PyCodeObject>()->co_filename);
    std::string_view name = file == nullptr ? "?" : file;
    name = name.substr(name.rfind('/') + 1);
    text += "  # " + std::string(name) + ":" + std::to_string(program.sites.line(node.site));
  }
  return node.live ? text : text + "  (dead)";
}

}  // namespace

std::string program_text(const Program& program) {
  std::string text;
  for (size_t i = 0; i < program.declared.size(); ++i)
    text += "input" + std::to_string(i) + ": " + text_of(program.declared[i].label) + "\n";
  uint16_t state = 0;
  for (uint32_t n = 0; n < program.nodes.size(); ++n) {
    if (program.nodes[n].state != state) {
      state = program.nodes[n].state;
      text += "-- " + state_text(program.states[state]) + "\n";
    }
    text += node_text(program, n) + "\n";
  }
  return text + "return " + value_text(program, program.result) + "\n";
}

}  // namespace alternator::graph
