// Guard programs: what must hold before a trace is replayed, checked on live objects.
//
// A program is built from a tree of sources and their guards. Sources that nothing depends on are dropped; the rest
// becomes an array in which parents come before their children, so that one loop walks it. A check runs no user code,
// allocates nothing if it succeeds, and leaves the error indicator as it was.
#pragma once

#include "guards/ambient.h"
#include "guards/binding.h"
#include "guards/guard_node.h"
#include "guards/pin.h"
#include "guards/size_program.h"
#include "lift/sources/source_step.h"

#include <memory>
#include <string>
#include <vector>

namespace alternator::guards {

// Why a check failed.
struct Explanation {
  std::string source;          // "self.layers[3].weight"; empty for ambient state
  std::string sentence;        // "the tensor is of size [2, 3], not of size [4, 3]"
  std::string kind;            // "kTensor", "identity", "ambient", "missing"
  std::string wanted, got;     // empty if there is nothing to compare
  std::string file, function;  // of the user's line that caused the guard; empty if there is none
  int line = 0;
  // All of it: "self.layers[3].weight: the tensor is ... (model.py:12, in forward)"
  std::string text() const;
};

// A variable of the program whose value fails its guards.
struct Change {
  enum class Kind : uint8_t { kNumber, kText, kContainer, kSize } kind;
  std::string source;
  uint64_t dimensions = 0;    // kSize: a bit for each size that differs
  bool in_container = false;  // kNumber: it is no variable of its own
  uint64_t layout = 0;        // kSize: a bit for each stride, or lift::kOffsetBit, as in TensorSpec::Difference
};

class GuardProgram {
 public:
  // `symbols`: the numbers of the entry that differ from call to call; null: there are none.
  GuardProgram(std::unique_ptr<lift::SourceTree> tree, const std::vector<lift::Source*>& needed, AmbientGuard ambient,
               std::shared_ptr<fake::BackedSymbols> symbols = nullptr);
  ~GuardProgram();
  GuardProgram(const GuardProgram&) = delete;
  GuardProgram& operator=(const GuardProgram&) = delete;

  // True: all guards hold, and `values` (empty before) has what each needed source finds now; null for a source that is
  // guarded to be absent. The numbers of BackedSymbols::results() follow. Throws only on an internal bug or out of
  // memory.
  bool check(const Roots& roots, std::vector<Ref>* values);

  // What a compiler has assumed of sizes. Before the entry serves calls.
  void add_size_guards(const std::vector<shapes::Expression>& conditions, const std::vector<std::string>& origins) {
    sizes_->add_guards(conditions, origins);
  }
  const SizeProgram* sizes() const { return sizes_.get(); }

  // After a failed check: which guard, the expected value, the user's line.
  std::string failure() const { return explain_failure(nullptr).text(); }
  // The same with the value found instead: walks the program again on these roots, for which the check failed.
  std::string failure(const Roots& roots) { return explain(roots).text(); }
  Explanation explain(const Roots& roots);
  // The variables that make this entry fail, if only such do: see changed_values.cpp.
  // Numbers in containers come before the containers.
  std::vector<Change> changed(const Roots& roots);

  // Every guard as text, for logs and tests.
  std::vector<std::string> texts() const;
  std::vector<Explanation> all() const;
  // Statistics of the last checks, for tests and benchmarks.
  struct Counts {
    uint64_t walked = 0, bound = 0;  // units
    uint64_t bindings_made = 0, bindings_stale = 0;
    uint64_t asked = 0;                   // tensors of bindings that had changed, or might have
    size_t bindings = 0, operations = 0;  // current
  };
  Counts counts() const;
  // Debugging: without bindings every check walks; with `verify` every check is also made by walking, and must agree.
  static void set_bindings(bool enabled);
  static void set_verify(bool enabled);

  size_t node_count() const { return nodes_.size(); }
  size_t check_count() const { return checks_.size(); }
  const lift::SourceTree& tree() const { return *tree_; }

  // For the garbage collector of the program's owner.
  template <class Visit>
  void each_object(Visit&& visit) {
    ambient_.each_object(visit);
    for (const Node& node : nodes_) visit(tree_->at(node.source->id)->key);
    for (Node& node : nodes_) node.key.each_object(visit);
    for (Check& check : checks_) check.each_object(visit);
    for (Unit& unit : units_) {
      for (auto& binding : unit.bindings) binding->each_object(visit);
    }
  }

 private:
  friend class Flattener;
  // A dict that changed this often, although every guard held, is compared item by item from then on.
  static constexpr uint8_t kVolatileAfter = 2;
  static constexpr size_t kMaxBindings = 64, kMaxCombinations = 64;

  struct Failure {
    enum class Kind : uint8_t { kNone, kAmbient, kMissing, kCheck, kRelation, kIdentity, kSize } kind = Kind::kNone;
    uint32_t index = 0;  // of the node, check or relation
    uint32_t other = 0;  // with kIdentity: the second node
  };

  // Building (build_guards.cpp).
  void build(const std::vector<lift::Source*>& needed, std::shared_ptr<fake::BackedSymbols> symbols);
  void build_checks(const std::vector<uint32_t>& node_of);
  void build_needed(const std::vector<lift::Source*>& needed, const std::vector<uint32_t>& node_of);

  // Checking (guard_program.cpp).
  bool check_by_walking(const Roots& roots);
  bool walk(const Roots& roots, uint32_t begin, uint32_t end);
  bool relation_holds(const Relation& relation) const;
  bool relations_hold();
  bool identities_hold();
  bool are_distinct();
  bool fail(Failure::Kind kind, uint32_t index, uint32_t other = 0);
  void note_values();
  void collect(std::vector<Ref>* values);
  void release_owned();

  // Bindings (binding.cpp, flatten_guards.cpp).
  enum class Verdict : uint8_t { kHolds, kFails, kStale };
  bool check_by_units(const Roots& roots);
  bool check_unit(size_t number, const Roots& roots);
  bool is_proved(const Op& op);
  void settle(Unit& unit, const Binding& binding);
  Verdict run(const Roots& roots, Unit& unit, Binding& binding);
  void note_changes(const Binding& binding);
  bool has_settled(Binding& binding);
  void retire(Unit& unit, size_t position);
  static void note_use(Unit& unit, const Binding& binding);
  bool deserves_binding(Unit& unit, PyObject* key) const;
  static bool is_small(const Unit& unit) { return unit.has_key && unit.end - unit.begin < 3; }
  void add_binding(Unit& unit, PyObject* key);
  std::unique_ptr<Binding> bind(const Unit& unit, PyObject* key);
  Combination* combination();
  bool combination_holds(const Combination& combination);
  void verify(const Roots& roots, bool holds);

  // Explaining (explain_guards.cpp).
  Explanation explain_failure(const Roots* roots) const;

  std::unique_ptr<lift::SourceTree> tree_;
  AmbientGuard ambient_;
  std::vector<Node> nodes_;
  std::vector<Check> checks_;
  std::vector<Relation> relations_;
  std::vector<uint32_t> identities_;    // nodes whose objects are pairwise distinct
  std::vector<uint32_t> needed_;        // nodes
  std::vector<uint32_t> needed_dicts_;  // positions of instance dicts among them, which may have to be created
  bool checks_identity_ = true;

  std::unique_ptr<SizeProgram> sizes_;

  std::vector<Unit> units_;
  size_t small_units_ = 0;        // the first ones, which are too small for a binding
  std::vector<uint8_t> changes_;  // by node: how often a dict changed without failing a guard
  std::vector<Combination> combinations_;
  Counts counts_;

  // State of the running check: no user code runs meanwhile, so there is one at a time.
  std::vector<PyObject*> found_;   // by node, borrowed
  std::vector<PyObject*> values_;  // by needed node, borrowed: contiguous copies of scattered found_ entries
  std::vector<lift::Memo> memos_;
  std::vector<std::pair<uintptr_t, uint32_t>> addresses_;
  std::vector<Ref> owned_;     // results that no container holds
  std::vector<uint64_t> ids_;  // by unit: its binding, 0 if it was walked
  std::vector<std::unique_ptr<Binding>> retired_;
  Failure failure_;
};

}  // namespace alternator::guards
