// The rows of the lifting table: how an object of each kind is lifted.
#pragma once

#include "lift/sources/source.h"

namespace alternator::lift {

class Lifter;

// For an object that was not lifted before and that is not plain.
Ref lift_by_kind(Lifter& lifter, Borrowed value, Source* source);

// Rows of objects that consist of others (composite_rows.cpp): private ones, made of lifted parts.
Ref lift_tuple(Lifter& lifter, Borrowed tuple, Source* source);
// Its parts may be symbols.
Ref lift_slice(Lifter& lifter, Borrowed slice, Source* source);
Ref lift_method(Lifter& lifter, Borrowed method, Source* source);
Ref lift_builtin(Lifter& lifter, Borrowed builtin, Source* source);
Ref lift_partial(Lifter& lifter, Borrowed partial, Source* source);
Ref lift_super(Lifter& lifter, Borrowed super, Source* source);
Ref lift_weak_reference(Lifter& lifter, Borrowed reference, Source* source);
Ref lift_tree_spec(Lifter& lifter, Borrowed spec, Source* source);
Ref lift_proxy(Lifter& lifter, Borrowed proxy, Source* source);
Ref lift_view(Lifter& lifter, Borrowed view, Source* source);

}  // namespace alternator::lift
