// shapes.Environment and shapes.Expression: environments and their expressions as Python sees them.
#pragma once

#include "py/error.h"
#include "shapes/environment.h"

#include <memory>

namespace alternator::shapes {

struct EnvironmentObject {
  PyObject_HEAD std::shared_ptr<ShapeEnvironment> environment;
};

// The types. That of environments is made by bindings/bind_shapes.cpp, which has its methods.
PyTypeObject* python_expression_type();
void set_python_environment_type(PyTypeObject* type);

// An Environment of Python that shares this one.
Ref python_environment(std::shared_ptr<ShapeEnvironment> environment);
ShapeEnvironment& environment_of(Borrowed object);

// An Expression of Python, which keeps its environment alive. None for no expression.
Ref python_expression(Borrowed environment, Expression node);
// Throws TypeError unless the object is an Expression of this environment, or None.
Expression expression_of(Borrowed environment, Borrowed object);

// A value of that sort.
Ref python_number(Sort sort, Register value);

}  // namespace alternator::shapes
