// Descriptions of failed guards.
#include "guards/guard_mutants.h"
#include "guards/guard_program.h"
#include "guards/guard_texts.h"

#include <cstring>

namespace alternator::guards {

using lift::GuardKind;

namespace {

std::string utf8(PyObject* text) {
  const char* bytes = PyUnicode_AsUTF8(text);
  if (bytes == nullptr) PyErr_Clear();
  return bytes != nullptr ? bytes : "?";
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
// For what a compiler has assumed.
static std::string assumed_by(const std::string& origin) { return origin.empty() ? "" : "; assumed by " + origin; }

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
    case Failure::Kind::kSize: {
      const SizeProgram::Failed failed = sizes_->explain();
      result.kind = "kSize";
      result.source = failed.source;
      result.wanted = failed.wanted;
      result.got = failed.got;
      result.sentence = "it holds that " + failed.wanted + ", not where " + failed.got + assumed_by(failed.origin);
      name_site(tree_->site(failed.site), &result);
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
    const bool holds = check_by_walking(roots);
    if (holds && sizes_ != nullptr && !sizes_->check(found_.data())) fail(Failure::Kind::kSize, 0);
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
  if (sizes_ != nullptr) {
    for (const auto& [text, site, origin] : sizes_->texts()) {
      Explanation& line = guards.emplace_back();
      line.kind = "kSize";
      line.wanted = text;
      line.sentence = "it holds that " + text + assumed_by(origin);
      name_site(tree_->site(site), &line);
    }
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
