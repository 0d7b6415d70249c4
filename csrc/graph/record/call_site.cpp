#include "graph/record/call_site.h"

#include "py/import.h"
#include "py/lasting.h"

#include <frameobject.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace alternator::graph {

namespace {

Ref current_frame() { return Ref::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get()))); }

}  // namespace

PythonStack::PythonStack() : base_(current_frame().get()) {}

void PythonStack::collect(std::vector<Frame>& frames) {
  codes_.clear();
  Ref frame = current_frame();
  while (frame && frame.get() != base_) {
    auto* raw = frame.as<PyFrameObject>();
    codes_.push_back(Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw))));
    frames.push_back({codes_.back().get(), PyFrame_GetLasti(raw)});
    frame = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
}

uint32_t SiteTable::intern(const std::vector<Frame>& innermost_first) {
  uint32_t site = kNowhere;
  auto frame = innermost_first.rbegin();
  size_t depth = 0;
  for (; frame != innermost_first.rend() && depth < last_.size(); ++frame, depth++) {
    if (last_[depth].code != frame->code || last_[depth].offset != frame->offset) break;
    site = last_[depth].site;
  }
  last_.resize(depth);
  for (; frame != innermost_first.rend(); ++frame) {
    auto [code, new_code] = code_numbers_.try_emplace(frame->code, static_cast<uint32_t>(codes_.size()));
    if (new_code) {
      codes_.push_back(Ref::share(frame->code));
      internal_.push_back(-1);
    }
    auto [number, new_site] =
        site_numbers_.try_emplace(Key{site, code->second, frame->offset}, static_cast<uint32_t>(sites_.size()));
    if (new_site) sites_.push_back({site, code->second, frame->offset});
    site = number->second;
    last_.push_back({frame->code, frame->offset, site});
  }
  return site;
}

int SiteTable::line(uint32_t site) const {
  return PyCode_Addr2Line(code(sites_[site]).as<PyCodeObject>(), sites_[site].offset);
}

void SiteTable::clear() {
  sites_.clear();
  site_numbers_.clear();
  codes_.clear();
  code_numbers_.clear();
  texts_.clear();
  internal_.clear();
  last_.clear();
}

// Code of torch: its lines say nothing about the user's program.
bool SiteTable::is_internal(uint32_t code) {
  int8_t& answer = internal_[code];
  if (answer < 0) {
    static constinit Lasting<std::string> torch_root;
    const std::string& root = torch_root.get([] {
      Ref torch = import_module("torch");
      Ref file = checked(PyObject_GetAttrString(torch.get(), "__file__"));
      const char* text = PyUnicode_AsUTF8(file.get());
      if (text == nullptr) throw PyError();
      std::string path(text);
      return path.substr(0, path.rfind('/') + 1);
    });
    const char* file = PyUnicode_AsUTF8(codes_[code].as<PyCodeObject>()->co_filename);
    if (file == nullptr) PyErr_Clear();
    answer = file != nullptr && std::strncmp(file, root.c_str(), root.size()) == 0;
  }
  return answer == 1;
}

Ref SiteTable::frame_text(uint32_t number) {
  const Site& site = sites_[number];
  auto* code = codes_[site.code].as<PyCodeObject>();
  const int at = line(number);
  static constinit Lasting<Ref> getline;
  const Ref& get = getline.get([] {
    Ref linecache = import_module("linecache");
    return checked(PyObject_GetAttrString(linecache.get(), "getline"));
  });
  Ref source = checked(PyObject_CallFunction(get.get(), "Oi", code->co_filename, at));
  Ref stripped = checked(PyObject_CallMethod(source.get(), "strip", nullptr));
  return checked(PyUnicode_FromFormat("  File \"%U\", line %d, in %U\n    %U\n", code->co_filename, at, code->co_name,
                                      stripped.get()));
}

Ref SiteTable::text(uint32_t site) {
  if (site == kNowhere) return checked(PyUnicode_FromString(""));
  if (texts_.size() < sites_.size()) texts_.resize(sites_.size());
  if (texts_[site]) return texts_[site];
  const Site here = sites_[site];
  bool anywhere_else = false;
  for (uint32_t s = site; s != kNowhere && !anywhere_else; s = sites_[s].caller)
    anywhere_else = !is_internal(sites_[s].code);
  Ref above = text(here.caller);
  Ref result;
  if (anywhere_else && is_internal(here.code)) {
    result = std::move(above);
  } else if (!anywhere_else) {
    result = frame_text(site);  // only torch frames: the innermost line is the best available
  } else {
    // Torch frames above a user frame (a hook, a callback) were left out of `above` unless there were no others.
    bool above_internal = true;
    for (uint32_t s = here.caller; s != kNowhere && above_internal; s = sites_[s].caller)
      above_internal = is_internal(sites_[s].code);
    Ref own = frame_text(site);
    result = above_internal ? std::move(own) : checked(PyUnicode_Concat(above.get(), own.get()));
  }
  return texts_[site] = std::move(result);
}

uint32_t ModuleTable::intern(uint32_t outer, Borrowed module, StackSource* stack) {
  auto [number, fresh] = numbers_.try_emplace({outer, module.get()}, static_cast<uint32_t>(scopes_.size()));
  if (fresh)
    scopes_.push_back({outer, Ref::share(module), Ref(), stack != nullptr ? stack->path_of(module) : std::string()});
  return number->second;
}

// "self.layers[3].norm" in TorchDynamo's notation: "L['self'].layers.3.norm".
static std::string dotted(const std::string& path) {
  const size_t root = std::min(path.find_first_of(".["), path.size());
  std::string result = "L['" + path.substr(0, root) + "']";
  for (size_t i = root; i < path.size(); ++i) {
    if (path[i] == '[') {
      result += '.';
    } else if (path[i] != ']' && path[i] != '\'' && path[i] != '"') {
      result += path[i];
    }
  }
  return result;
}

Ref ModuleTable::stack(uint32_t number, Borrowed paths) {
  if (number == kNowhere) return checked(PyDict_New());
  if (scopes_[number].stack) return scopes_[number].stack;
  Ref outer = stack(scopes_[number].outer, paths);
  Ref result = checked(PyDict_Copy(outer.get()));
  PyObject* module = scopes_[number].module.get();
  Ref id = checked(PyLong_FromVoidPtr(module));
  Ref path;
  if (paths && paths.get() != Py_None) path = Ref::share(PyDict_GetItemWithError(paths.get(), id.get()));
  if (!path && PyErr_Occurred()) throw PyError();
  if (!path && !scopes_[number].path.empty())
    path = checked(PyUnicode_FromString(dotted(scopes_[number].path).c_str()));
  if (!path) path = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(module)), "__name__"));
  Ref key = checked(PyObject_Str(id.get()));
  Ref entry = checked(PyTuple_Pack(2, path.get(), reinterpret_cast<PyObject*>(Py_TYPE(module))));
  check_status(PyDict_SetItem(result.get(), key.get(), entry.get()));
  return scopes_[number].stack = std::move(result);
}

}  // namespace alternator::graph
