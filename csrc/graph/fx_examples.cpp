#include "graph/fx_examples.h"

#include "graph/torch_types.h"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/Device.h>

namespace alternator::graph {

FxExamples::FxExamples(Borrowed fake_mode) : mode_(Ref::share(fake_mode)) {}

// Same sizes, strides, offset and dtype on "meta", over a storage that is shared wherever the fake's was.
at::Tensor FxExamples::meta_copy(const at::Tensor& fake) {
  const c10::StorageImpl* original = fake.storage().unsafeGetStorageImpl();
  auto [storage, fresh] = storages_.try_emplace(original);
  if (fresh) {
    const auto nbytes = static_cast<int64_t>(original->nbytes());
    storage->second = at::Tensor(at::detail::empty_meta({nbytes}, at::kByte)).storage();
  }
  at::Tensor meta = at::Tensor(at::detail::empty_meta({0}, fake.scalar_type()));
  c10::TensorImpl* impl = meta.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(storage->second);
  impl->set_sizes_and_strides(fake.sizes(), fake.strides(), fake.storage_offset());
  if (fake.is_conj()) impl->_set_conj(true);
  if (fake.is_neg()) impl->_set_neg(true);
  return meta;
}

Ref FxExamples::of(const at::Tensor& fake) {
  Ref& example = examples_[fake.unsafeGetTensorImpl()];
  if (example) return example;
  static PyObject* fake_tensor = torch_name("torch._subclasses.fake_tensor", "FakeTensor").release();
  static PyObject* parameter = torch_name("torch.nn", "Parameter").release();
  Ref meta = checked(THPVariable_Wrap(meta_copy(fake)));
  Ref device = checked(THPDevice_New(fake.device()));
  Ref result = checked(PyObject_CallFunctionObjArgs(fake_tensor, mode_.get(), meta.get(), device.get(), nullptr));
  if (fake.requires_grad()) as_tensor(result).set_requires_grad(true);
  Ref object = checked(THPVariable_Wrap(fake));
  if (PyObject_TypeCheck(object.get(), reinterpret_cast<PyTypeObject*>(parameter)))
    check_status(PyObject_SetAttrString(result.get(), "_is_param", Py_True));
  return example = std::move(result);
}

Ref FxExamples::of_real(const at::Tensor& fake, Borrowed real) {
  static PyObject* static_shapes = checked(Py_BuildValue("{s:O}", "static_shapes", Py_True)).release();
  Ref from_tensor = checked(PyObject_GetAttrString(mode_.get(), "from_tensor"));
  Ref arguments = checked(PyTuple_Pack(1, real.get()));
  Ref example = checked(PyObject_Call(from_tensor.get(), arguments.get(), static_shapes));
  examples_[fake.unsafeGetTensorImpl()] = example;
  return example;
}

}  // namespace alternator::graph
