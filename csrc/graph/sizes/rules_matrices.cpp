// Functions of matrices in the last two dimensions: torch.linalg.
#include "graph/sizes/rule_call.h"

namespace alternator::graph {

using shapes::Expression;

static Sizes matrices(RuleCall& call, const char* names = "input|self|A") {
  Sizes sizes = call.sizes(0, names);
  RuleCall::check(sizes.size() >= 2);
  return sizes;
}

static Sizes batch_of(const Sizes& sizes) { return Sizes(sizes.begin(), sizes.end() - 2); }

static Sizes with(Sizes sizes, std::initializer_list<Expression> more) {
  for (const Expression size : more) sizes.push_back(size);
  return sizes;
}

static Expression smaller(RuleCall& call, const Sizes& sizes) {
  return call.environment().minimum(sizes[sizes.size() - 2], sizes.back());
}

// The options that they have besides do not matter to the sizes.
Sizes without_matrix(RuleCall& call) {
  const Sizes sizes = matrices(call);
  // Tolerances may be tensors, one for each matrix.
  RuleCall::check(!call.is_tensor_at(1, "p|tol"));
  call.ignore(1, "p|tol");
  call.ignore(RuleCall::kKeywordOnly, "hermitian");
  return batch_of(sizes);
}

// solve(A, B): B may be one vector, or as many as there are matrices, which is decided by its sizes.
Sizes solve(RuleCall& call) {
  const Sizes a = matrices(call), b = call.sizes(1, "B");
  (void)call.flag(RuleCall::kKeywordOnly, "left", true);
  bool is_vector = b.size() == 1;
  if (!is_vector && b.size() + 1 == a.size()) {
    is_vector = true;
    for (size_t d = 0; is_vector && d < b.size(); d++) is_vector = call.holds(call.environment().equal(a[d], b[d]));
  }
  RuleCall::check(is_vector || b.size() >= 2);
  if (is_vector) return with(call.broadcast(batch_of(a), Sizes(b.begin(), b.end() - 1)), {b.back()});
  return with(call.broadcast(batch_of(a), batch_of(b)), {b[b.size() - 2], b.back()});
}

Sizes solve_triangular(RuleCall& call) {
  const Sizes a = matrices(call), b = call.sizes(1, "B");
  for (const char* name : {"upper", "left", "unitriangular"}) (void)call.flag(RuleCall::kKeywordOnly, name, false);
  RuleCall::check(b.size() >= 2);
  return with(call.broadcast(batch_of(a), batch_of(b)), {b[b.size() - 2], b.back()});
}

Sizes eigenvalues(RuleCall& call) {
  const Sizes a = matrices(call);
  call.ignore(1, "UPLO");
  return with(batch_of(a), {a.back()});
}

Sizes eigenvectors(RuleCall& call) {
  if (call.position() == 0) return eigenvalues(call);
  call.ignore(1, "UPLO");
  return matrices(call);
}

// The result, and what went wrong with each matrix.
Sizes same_and_info(RuleCall& call) {
  const Sizes a = matrices(call);
  for (const char* name : {"upper", "check_errors"}) (void)call.flag(RuleCall::kKeywordOnly, name, false);
  return call.position() == 0 ? a : batch_of(a);
}

Sizes qr(RuleCall& call) {
  const Sizes a = matrices(call);
  const Expression rows = a[a.size() - 2], columns = a.back(), least = smaller(call, a);
  const std::optional<Value> mode = call.find(1, "mode");
  bool is_complete = false;
  if (mode) {
    const Borrowed text = call.object(*mode);
    RuleCall::check(PyUnicode_Check(text.get()));
    is_complete = PyUnicode_CompareWithASCIIString(text.get(), "complete") == 0;
    RuleCall::check(is_complete || PyUnicode_CompareWithASCIIString(text.get(), "reduced") == 0);
  }
  const Expression inner = is_complete ? rows : least;
  return call.position() == 0 ? with(batch_of(a), {rows, inner}) : with(batch_of(a), {inner, columns});
}

Sizes singular_values(RuleCall& call) {
  const Sizes a = matrices(call);
  call.ignore(RuleCall::kKeywordOnly, "driver");
  return with(batch_of(a), {smaller(call, a)});
}

// U, S, Vh
Sizes svd(RuleCall& call) {
  if (call.position() == 1) {
    call.ignore(1, "full_matrices");
    return singular_values(call);
  }
  const Sizes a = matrices(call);
  call.ignore(RuleCall::kKeywordOnly, "driver");
  const Expression rows = a[a.size() - 2], columns = a.back();
  const bool is_full = call.flag(1, "full_matrices", true);
  const Expression inner = smaller(call, a);
  if (call.position() == 0) return with(batch_of(a), {rows, is_full ? rows : inner});
  return with(batch_of(a), {is_full ? columns : inner, columns});
}

}  // namespace alternator::graph
