// The properties of each operator: which kernel computes the metadata of its outputs, and what it does to its
// arguments.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace alternator::fake {

enum class KernelKind : uint8_t {
  Rule,        // one of ours, unboxed over fakes
  Meta,        // a C++ Meta kernel, also where `import torch` has overridden it with a Python one
  Composite,   // C++ in terms of other operators (CompositeExplicitAutograd)
  Implicit,    // CompositeImplicitAutograd: the same, and decomposed before autograd unless autograd is off
  PythonMeta,  // a Python meta kernel
  None,        // only FakeTensorMode may have a result
};
const char* name_of(KernelKind kind);

struct Op {
  std::string name;  // "aten::add.Tensor"
  // Identifies the registrations that the choice of kernel was based on: operators outside of torch may be defined, and
  // redefined, at any time.
  uint64_t fingerprint = 0;
  bool is_core = false;
  c10::KernelFunction kernel;
  c10::KernelFunction python_meta;  // the second try where a composite needs data
  // A composite that needed data once is not tried again: PythonMeta (or None) from then on.
  std::atomic<KernelKind> kind{KernelKind::None};
  // Its kernel compares the addresses of tensors, although it mutates none of its arguments.
  std::atomic<bool> compares_addresses{false};

  // An argument is a torch object (a process group, packed weights) whose use is not known.
  bool takes_objects = false;

  uint16_t argument_count = 0, return_count = 0;
  int16_t device_argument = -1;
  int16_t dtype_argument = -1;
  uint64_t written_arguments = 0;  // a bit for each of the first 64 arguments
  bool mutates = false;            // any argument is mutated
  bool returns_view = false;       // an output aliases an argument that is not mutated
  bool data_dependent = false;     // returns a Python value that depends on data
  bool dynamic_shape = false;      // an output's shape depends on data
  bool is_index = false;           // index.Tensor: dynamic only for masks
  bool takes_indices = false;      // index, index_put: indices may live on the CPU, or where the tensor does
  bool mixes_devices = false;      // takes tensors of several devices, as in eager
  uint64_t cpu_scalars = 0;        // arguments that may be 0-d CPU tensors among those of another device
  bool random = false;             // draws random numbers
  bool checks = false;             // only checks data and may raise
  bool is_foreach = false;
  bool asks_device = false;           // its Python kernel takes every meta tensor for a CUDA one
  bool counts_known = false;          // repeat_interleave: not dynamic where the output size is given
  bool is_lift = false;               // lift_fresh: takes over a tensor made from Python data
  bool has_tensor_arguments = false;  // by its schema
  bool has_tensors = false;           // the same, or it returns tensors
};

// Created on first use, kept for the process. Thread-safe.
Op& op_of(const c10::OperatorHandle& handle);

}  // namespace alternator::fake
