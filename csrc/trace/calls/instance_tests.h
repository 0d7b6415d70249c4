// isinstance() and issubclass(), and calls on containers that are lifted in part.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

// Guards the MRO of a class, if it may change.
void guard_order_of_bases(Tracer& t, Borrowed cls);
// len() and isinstance() of a partly lifted container, which stays so. Null: it is another call.
Ref call_on_partly_read(Tracer& t, const Call& call);
// True: the test depends on class structure alone, and runs natively.
bool check_instance_test(Tracer& t, Borrowed subject_class, Borrowed classes);
// Null: it is no such test.
Ref real_instance_test(Tracer& t, Borrowed callable, Borrowed subject);

}  // namespace alternator::trace
