// The interpreter's limit for int <-> str conversion.
#pragma once

namespace alternator::cpython {

// sys.get_int_max_str_digits(); 0: no limit.
int most_digits();

}  // namespace alternator::cpython
