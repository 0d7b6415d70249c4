// The location of a recorded call in the user's program: the Python frames above it and the nn.Modules it runs in. Both
// are indices into tables that share common prefixes; text is created late, for live nodes only.
#pragma once

#include "py/error.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace alternator::graph {

inline constexpr uint32_t kNowhere = UINT32_MAX;

// One frame of a call stack: `offset` is in the unit of co_positions() and PyCode_Addr2Line (bytes).
struct Frame {
  PyObject* code;  // borrowed
  int offset;
  PyObject* module = nullptr;  // borrowed: the nn.Module whose call this frame is
};

// Lists the frames of the traced program, innermost first, and no others. The tracer's implementation reads its own
// frames; PythonStack below asks CPython.
class StackSource {
 public:
  virtual ~StackSource() = default;
  virtual void collect(std::vector<Frame>& frames) = 0;
  // The user's expression for the module of a frame: "self.layers[3]". Empty: unknown.
  virtual std::string path_of(Borrowed /*module*/) { return {}; }
};

// The Python stack of the current thread, down to (excluding) the frame that was current at construction.
class PythonStack final : public StackSource {
 public:
  PythonStack();
  void collect(std::vector<Frame>& frames) override;

 private:
  // Only compared: owning the frame would keep its locals alive, this object among them.
  const void* base_;
  std::vector<Ref> codes_;  // keeps the code objects that collect() returned alive until the next call
};

// Stacks of frames, by index.
class SiteTable {
 public:
  uint32_t intern(const std::vector<Frame>& innermost_first);

  struct Site {
    uint32_t caller;
    uint32_t code;
    int offset;
  };
  const Site& operator[](uint32_t site) const { return sites_[site]; }
  Borrowed code(const Site& site) const { return codes_[site.code]; }
  int line(uint32_t site) const;
  // "  File ..., line ..., in ...\n    source\n" for each frame, outermost first, as traceback.format_stack() has it.
  // Frames inside of torch are left out unless there are no others. Empty for kNowhere.
  Ref text(uint32_t site);

  template <class Visit>
  void each_object(Visit&& visit) {
    for (Ref& code : codes_) visit(code);
    for (Ref& text : texts_) visit(text);
  }
  void clear();

 private:
  bool is_internal(uint32_t code);
  Ref frame_text(uint32_t site);

  struct Key {
    uint32_t caller, code;
    int offset;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return (key.caller * 0x9E3779B1u) ^ (key.code * 0x85EBCA77u) ^ (static_cast<size_t>(key.offset) << 20);
    }
  };
  std::vector<Site> sites_;
  std::unordered_map<Key, uint32_t, KeyHash> site_numbers_;
  std::vector<Ref> codes_;
  std::unordered_map<PyObject*, uint32_t> code_numbers_;
  std::vector<Ref> texts_;
  std::vector<int8_t> internal_;  // per code: -1 not determined yet
  struct Last {
    PyObject* code;  // one of codes_
    int offset;
    uint32_t site;
  };
  std::vector<Last> last_;  // the frames of the last query, outermost first: the next ones are mostly the same
};

// The nn.Modules whose forward is running, by index.
class ModuleTable {
 public:
  // The index of `module` called inside of `outer`. `stack`, if given, provides the path of a new module.
  uint32_t intern(uint32_t outer, Borrowed module, StackSource* stack = nullptr);
  uint32_t outer(uint32_t scope) const { return scopes_[scope].outer; }
  // {str(id(module)): (path, type)}, outermost first: FX's nn_module_stack. `paths` maps id(module) to its path and may
  // be null; a module without one is named by its type.
  Ref stack(uint32_t scope, Borrowed paths);

  template <class Visit>
  void each_object(Visit&& visit) {
    for (Scope& scope : scopes_) visit(scope.module), visit(scope.stack);
  }
  void clear() { scopes_.clear(), numbers_.clear(); }

 private:
  struct Scope {
    uint32_t outer;
    Ref module;
    Ref stack;
    std::string path;  // the user's expression; empty: unknown
  };
  struct PairHash {
    size_t operator()(const std::pair<uint32_t, PyObject*>& key) const {
      return key.first * 0x9E3779B1u ^ std::hash<PyObject*>()(key.second);
    }
  };
  std::vector<Scope> scopes_;
  std::unordered_map<std::pair<uint32_t, PyObject*>, uint32_t, PairHash> numbers_;
};

}  // namespace alternator::graph
