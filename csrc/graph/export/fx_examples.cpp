#include "graph/export/fx_examples.h"

#include "graph/record/torch_types.h"
#include "py/lasting.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/Device.h>

namespace alternator::graph {

FxExamples::FxExamples(Borrowed fake_mode) : mode_(Ref::share(fake_mode)) {}

// Same sizes, strides, offset and dtype on "meta", over storages that are shared where the fakes share theirs.
at::Tensor FxExamples::meta_copy(const at::Tensor& fake) {
  const c10::StorageImpl* original = fake.storage().unsafeGetStorageImpl();
  auto [storage, fresh] = storages_.try_emplace(original);
  if (fresh) {
    storage->second =
        c10::Storage(c10::Storage::use_byte_size_t(), original->sym_nbytes(), c10::GetAllocator(c10::kMeta),
                     /*resizable=*/true);
  }
  at::Tensor meta = at::Tensor(at::detail::empty_meta({0}, fake.scalar_type()));
  c10::TensorImpl* impl = meta.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(storage->second);
  if (fake.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    impl->set_sizes_and_strides(fake.sym_sizes(), fake.sym_strides(), fake.sym_storage_offset());
  } else {
    impl->set_sizes_and_strides(fake.sizes(), fake.strides(), fake.storage_offset());
  }
  if (fake.is_conj()) impl->_set_conj(true);
  if (fake.is_neg()) impl->_set_neg(true);
  return meta;
}

// FakeTensor's constructor is Python and takes longer than the rest of an export. It creates the first FakeTensor of
// each device; the others are created as it creates its tensor, and get the same attributes.
Ref FxExamples::wrap(const at::Tensor& meta, c10::Device device) {
  struct Names {
    Ref fake_tensor = torch_name("torch._subclasses.fake_tensor", "FakeTensor");
    Ref make_subclass;
    Ref keywords = checked(Py_BuildValue("(ss)", "dispatch_device", "device_for_backend_keys"));
    Ref fake_mode = checked(PyUnicode_InternFromString("fake_mode"));
    Ref fake_device = checked(PyUnicode_InternFromString("fake_device"));  // until torch 2.12
    Ref own_fake_device = checked(PyUnicode_InternFromString("_fake_device"));
    Ref trace = checked(PyUnicode_InternFromString("_debug_trace"));  // individual to each
    Names() {
      Ref tensor = torch_name("torch", "Tensor");
      make_subclass = checked(PyObject_GetAttrString(tensor.get(), "_make_subclass"));
    }
  };
  static constinit Lasting<Names> lasting;
  const Names* names = &lasting.get();
  Ref object = checked(THPVariable_Wrap(meta));
  Ref py_device = checked(THPDevice_New(device));
  const auto pattern = patterns_.find(device);
  if (pattern == patterns_.end()) {
    Ref first = checked(
        PyObject_CallFunctionObjArgs(names->fake_tensor.get(), mode_.get(), object.get(), py_device.get(), nullptr));
    Ref attributes = checked(PyObject_GetAttrString(first.get(), "__dict__"));
    const bool as_known =
        contains(attributes, names->fake_mode).value() && !contains(attributes, names->trace).value() &&
        (contains(attributes, names->fake_device).value() || contains(attributes, names->own_fake_device).value());
    if (as_known) patterns_.emplace(device, checked(PyDict_Copy(attributes.get())));
    return first;
  }
  PyObject* arguments[] = {names->fake_tensor.get(), object.get(), Py_False, Py_True, py_device.get()};
  Ref result = checked(PyObject_Vectorcall(names->make_subclass.get(), arguments, 3, names->keywords.get()));
  meta.storage().unsafeGetStorageImpl()->set_throw_on_mutable_data_ptr();
  // PyDict_Copy clones the table at once; filling a dict takes much longer.
  Ref attributes = checked(PyDict_Copy(pattern->second.get()));
  check_status(PyObject_GenericSetDict(result.get(), attributes.get(), nullptr));
  return result;
}

Ref FxExamples::of(const at::Tensor& fake) {
  Ref& example = examples_[fake.unsafeGetTensorImpl()];
  if (example) return example;
  static constinit Lasting<Ref> parameter;
  const Ref& parameter_type = parameter.get([] { return torch_name("torch.nn", "Parameter"); });
  Ref result = wrap(meta_copy(fake), fake.device());
  if (fake.requires_grad()) as_tensor(result).set_requires_grad(true);
  Ref object = checked(THPVariable_Wrap(fake));
  if (PyObject_TypeCheck(object.get(), parameter_type.as<PyTypeObject>()))
    check_status(PyObject_SetAttrString(result.get(), "_is_param", Py_True));
  return example = std::move(result);
}

Ref FxExamples::of_real(const at::Tensor& fake, Borrowed real) {
  Ref static_shapes = checked(Py_BuildValue("{s:O}", "static_shapes", Py_True));
  Ref from_tensor = checked(PyObject_GetAttrString(mode_.get(), "from_tensor"));
  Ref arguments = checked(PyTuple_Pack(1, real.get()));
  Ref example = checked(PyObject_Call(from_tensor.get(), arguments.get(), static_shapes.get()));
  examples_[fake.unsafeGetTensorImpl()] = example;
  return example;
}

}  // namespace alternator::graph
