// The interpreter's limit for numbers in texts.
#pragma once

namespace alternator::cpython {

// sys.get_int_max_str_digits(); 0: none.
int most_digits();

}  // namespace alternator::cpython
