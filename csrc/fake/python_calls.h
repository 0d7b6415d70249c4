// torch.Tensor methods that torch implements without its dispatcher: from data, which a fake does not have, or from the
// tensor's keys. Code that sees a call before torch does (a tracer, a torch-function mode) must try these first.
#pragma once

#include "fake/fake.h"

namespace alternator::fake {

// The result of such a method on a fake: new_tensor and new become factory calls; tolist and repr of a known constant
// are computed; reading anything else is DataDependent; deepcopy copies the storage's identity and size. An empty Ref
// for any other callable. `arguments` is a tuple, `keywords` a dict or null. The session is active.
Ref answer_method(Session& session, Borrowed function, Borrowed arguments, Borrowed keywords);

// A description of a fake, without its data: for logs and error messages, inside and outside of its session.
std::string describe(const at::Tensor& fake);

}  // namespace alternator::fake
