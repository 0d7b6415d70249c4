// Running an entry for a call.
#include "dispatch/entry.h"

#include "backend/graph_scopes.h"
#include "interpreter/frame_values.h"
#include "trace/core/tracer.h"

#include <algorithm>

namespace alternator::dispatch {

bool Entry::admits(const guards::Roots& roots, std::vector<Ref>* values) const {
  return guards->check(roots, values) && residual.program().is_alive() && graph.admits(*values);
}

Ref Entry::guard_texts() const {
  Ref texts = checked(PyList_New(0));
  for (const std::string& text : guards->texts())
    check_status(PyList_Append(texts.get(), checked(PyUnicode_FromString(text.c_str())).get()));
  for (const Check& check : checks) {
    auto* code = check.code.as<PyCodeObject>();
    const int line = PyCode_Addr2Line(code, check.index * static_cast<int>(sizeof(_Py_CODEUNIT)));
    Ref text = checked(PyUnicode_FromFormat("the data of the call, after it: the check at %U:%d does not raise",
                                            code->co_filename, line));
    check_status(PyList_Append(texts.get(), text.get()));
  }
  return texts;
}

// Entries whose speculated check keeps failing are dropped.
void Entry::refute(size_t check) {
  static constexpr int kMostRefuted = 3;
  Check& failed = checks[check];
  if (++failed.refuted < kMostRefuted) return;
  is_refuted = true;
  trace::stop_speculating(failed.code, failed.index);
}

// False: a speculated check failed, or the graph raised, possibly for that reason.
bool Entry::run_and_check(const std::vector<Ref>& values, backend::GraphOutputs* outputs) {
  std::optional<SavedRngState> rng_state;
  if (graph.facts().draws_random) rng_state.emplace();
  try {
    graph.run(values, outputs, nullptr);
  } catch (const PyError&) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw;
    PyErr_Clear();
    if (rng_state) rng_state->put_back();
    return false;
  }
  for (size_t i = 0; i < checks.size(); i++) {
    Borrowed flag = outputs->begin()[i];
    if (truth(flag).value() == checks[i].expected) continue;
    refute(i);
    if (rng_state) rng_state->put_back();
    return false;
  }
  return true;
}

// False: the graph raised, and the call starts over in eager.
bool Entry::run_graph(const std::vector<Ref>& values, backend::GraphOutputs* outputs, graph::Failure* failure,
                      std::optional<graph::WarningsKept>* kept) const {
  const bool repeatable = on_failure == FailurePolicy::kStartOver;
  const std::vector<uint32_t> versions =
      on_failure == FailurePolicy::kStartOverIfUnwritten ? graph.versions(values) : std::vector<uint32_t>();
  // AOTAutograd bumps the version of an input that is going to be mutated once beforehand; the write bumps it again.
  const auto is_unwritten = [&] {
    const std::vector<uint32_t> now = versions.empty() ? versions : graph.versions(values);
    return !now.empty() && std::equal(now.begin(), now.end(), versions.begin(), versions.end(),
                                      [](uint32_t after, uint32_t before) { return after <= before + 1; });
  };
  std::optional<SavedRngState> rng_state;
  if (graph.facts().draws_random && (repeatable || !versions.empty())) rng_state.emplace();
  try {
    backend::leaving_transforms(graph.facts().transforms,
                                [&] { graph.run(values, outputs, repeatable ? nullptr : failure); });
    return true;
  } catch (const PyError&) {
    const bool may_repeat = repeatable || is_unwritten();
    if (*kept && !may_repeat) {
      const SavedError on_its_way;
      std::vector<graph::Warning> given = (*kept)->take();
      kept->reset();
      graph::give(std::move(given), &warnings);
    }
    if (!may_repeat || !PyErr_ExceptionMatches(PyExc_Exception) || !graph.has_raised_itself()) throw;
    // Eager execution raises the right error at the right line, with the side effects up to there.
    PyErr_Clear();
    if (rng_state) rng_state->put_back();
    return false;
  }
}

Ref Entry::run(const std::vector<Ref>& values, Chain* chain, graph::Failure* failure) {
  backend::GraphOutputs outputs;
  exit.drop_casts();
  ExitState::OpenScopes scopes(exit);
  std::optional<graph::WarningsKept> kept;
  if (!warnings.empty()) {
    if (graph::may_raise_warnings()) return {};  // run eagerly: nothing has happened yet
    kept.emplace(graph::WarningsKept::Kind::kRun);
  }
  const bool has_run = on_failure == FailurePolicy::kSpeculates ? run_and_check(values, &outputs)
                                                                : run_graph(values, &outputs, failure, &kept);
  if (!has_run) return {};
  std::optional<graph::WarningsInTurn> in_turn;
  if (kept) {
    std::vector<graph::Warning> given = kept->take();
    kept.reset();
    if (prints) {
      in_turn.emplace(std::move(given), warnings);
    } else {
      graph::give(std::move(given), &warnings);
    }
  }
  return finish(values, outputs.begin(), outputs.size(), chain, scopes, in_turn ? &*in_turn : nullptr);
}

Ref Entry::finish(const std::vector<Ref>& values, PyObject* const* outputs, size_t count, Chain* chain) {
  ExitState::OpenScopes scopes(exit);
  return finish(values, outputs, count, chain, scopes, nullptr);
}

Ref Entry::finish(const std::vector<Ref>& values, PyObject* const* outputs, size_t count, Chain* chain,
                  ExitState::OpenScopes& scopes, graph::WarningsInTurn* warned) {
  replay::Residual::Results results = residual.run_all(values, outputs, count);
  if (warned != nullptr) warned->give_rest();
  exit.apply(scopes, results);
  if (residual.program().raises) replay::raise_again(std::move(results[0]));
  if (stop.empty()) return std::move(results[0]);
  for (const FrameState& shape : stop) take_shape(&chain->emplace_back(), shape);
  size_t next_value = 0;
  each_value(*chain, [&](Ref& value) { value = std::move(results[next_value++]); });
  return {};
}

}  // namespace alternator::dispatch
