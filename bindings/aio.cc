#include "bindings/aio.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <spdlog/spdlog.h>
#include <xxhash.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "bindings/errors.h"
#include "bindings/file_io.h"

namespace nb = nanobind;

namespace zoffload {
namespace {

constexpr uint64_t kPatienceNs = 20'000'000;  // between two looks at signals

// The bytes of a Python object, which cannot move, be resized or freed while they are held.
class HeldBuffer {
 public:
  // Raises BufferError, or TypeError where the object has no buffer.
  HeldBuffer(nb::handle object, bool writable) {
    const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~HeldBuffer() { PyBuffer_Release(&view_); }
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;

  uint64_t address() const { return reinterpret_cast<uint64_t>(view_.buf); }
  uint64_t nbytes() const { return static_cast<uint64_t>(view_.len); }

 private:
  Py_buffer view_ = {};
};

// Page-aligned memory in huge pages, every page present, registered with the handle that moves it,
// as a Python buffer. The handle outlives it.
class PinnedMemory {
 public:
  PinnedMemory(FileIo& io, uint64_t bytes) : io_(io) {
    const auto unregistered = [&]() -> Result<std::string> {
      nb::gil_scoped_release unlocked;
      ZO_ASSIGN_OR_RETURN(memory_, device_.allocate_pinned(bytes));
      return io.register_memory(memory_);
    }();
    raise_if_error(unregistered.status());
    const bool said = !io.unregistered().empty();
    if (!unregistered->empty() && !said) spdlog::warn("{}", *unregistered);
  }
  ~PinnedMemory() {
    nb::gil_scoped_release unlocked;
    io_.unregister_memory(memory_);
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  static int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    const HostSpan memory = nb::inst_ptr<PinnedMemory>(self)->memory_;
    return PyBuffer_FillInfo(view, self, memory.data(), static_cast<Py_ssize_t>(memory.size()), 0,
                             flags);
  }

 private:
  FileIo& io_;
  HostDevice device_;
  HostSpan memory_;
};

// An operation and the object whose memory it moves. The object is kept until the operation is
// done, even where nobody takes the result of the start: Ctrl-C may strike between any two lines of
// Python.
class HeldOperation {
 public:
  HeldOperation(std::shared_ptr<FileOperation> operation, nb::object owner)
      : operation_(std::move(operation)), owner_(std::move(owner)) {}
  ~HeldOperation() {
    if (operation_->done()) return;
    nb::gil_scoped_release unlocked;
    while (!operation_->wait(kPatienceNs)) {
    }
  }
  HeldOperation(const HeldOperation&) = delete;
  HeldOperation& operator=(const HeldOperation&) = delete;

  const FileOperation& operator*() const { return *operation_; }
  bool done() const { return operation_->done() || operation_->orphaned(); }

  // Raises at once what a signal's handler raises; the operation goes on.
  void wait() {
    const std::shared_ptr<FileOperation> operation = operation_;
    while (true) {
      {
        nb::gil_scoped_release unlocked;
        if (operation->wait(kPatienceNs)) return;
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }

  // Frees the object, if the operation is done.
  void let_go() {
    if (done()) const nb::object freed = std::move(owner_);
  }

 private:
  const std::shared_ptr<FileOperation> operation_;
  nb::object owner_;
};

IoEngine engine_named(const std::string& name) {
  if (name == "auto") return IoEngine::kAuto;
  if (name == "uring") return IoEngine::kUring;
  if (name == "libaio") return IoEngine::kLibaio;
  if (name == "threads") return IoEngine::kThreads;
  raise_if_error(Status(Code::kInvalidArgument,
                        "io_engine is '" + name + "'; it may be auto, uring, libaio or threads"));
  return IoEngine::kAuto;
}

DirectIoUse direct_named(const std::string& name) {
  if (name == "auto") return DirectIoUse::kAuto;
  if (name == "on") return DirectIoUse::kOn;
  if (name == "off") return DirectIoUse::kOff;
  raise_if_error(
      Status(Code::kInvalidArgument, "direct is '" + name + "'; it may be auto, on or off"));
  return DirectIoUse::kAuto;
}

std::unique_ptr<FileIo> open_file_io(uint64_t block_bytes, uint32_t queue_depth, uint32_t threads,
                                     const std::string& engine, const std::string& direct) {
  const FileIoOptions options{block_bytes, queue_depth, threads, engine_named(engine),
                              direct_named(direct)};
  auto io = [&] {
    nb::gil_scoped_release unlocked;
    return FileIo::open(options);
  }();
  raise_if_error(io.status());
  const bool second_best = options.engine == IoEngine::kAuto && (*io)->engine_name() != "io_uring";
  if (second_best) spdlog::warn("{}", (*io)->why());
  if (!(*io)->unregistered().empty()) spdlog::warn("{}", (*io)->unregistered());
  return std::move(*io);
}

std::unique_ptr<HeldOperation> start(FileIo& io, bool writes, const nb::bytes& path,
                                     uint64_t offset, uint64_t address, uint64_t nbytes,
                                     nb::object owner) {
  const std::string name(path.c_str(), path.size());
  const HostSpan memory(reinterpret_cast<std::byte*>(address), nbytes);
  auto operation = [&] {
    nb::gil_scoped_release unlocked;
    return writes ? io.write(name, memory, offset) : io.read(name, offset, memory);
  }();
  raise_if_error(operation.status());
  return std::make_unique<HeldOperation>(std::move(*operation), std::move(owner));
}

void raise_failure(const HeldOperation& held) {
  const FileOperation& operation = *held;
  if (operation.orphaned()) {
    raise_if_error(Status(Code::kUnsupported,
                          "the operation belongs to the process that started it; this is a fork"));
  }
  if (operation.done()) raise_if_error(operation.status());
}

bool failed(const HeldOperation& held) {
  const FileOperation& operation = *held;
  return operation.orphaned() || (operation.done() && !operation.status().ok());
}

uint64_t sum_of(nb::handle object) {
  const HeldBuffer buffer(object, false);
  return XXH3_64bits(reinterpret_cast<const void*>(buffer.address()), buffer.nbytes());
}

}  // namespace

void bind_aio(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<HeldBuffer>(module, "HeldBuffer", "The bytes of a C-contiguous buffer, held in place.")
      .def(nb::init<nb::handle, bool>(), "buffer"_a, "writable"_a)
      .def_prop_ro("address", &HeldBuffer::address)
      .def_prop_ro("nbytes", &HeldBuffer::nbytes);

  nb::class_<HeldOperation>(module, "FileOperation", "One read or write; see zoffload.aio.")
      .def("wait", &HeldOperation::wait, "Until it is done; without the interpreter lock.")
      .def("raise_failure", &raise_failure, "Raises its error, if it is done and has one.")
      .def("let_go", &HeldOperation::let_go, "Frees the owner of the memory, if it is done.")
      .def_prop_ro("done", &HeldOperation::done)
      .def_prop_ro("failed", &failed);

  nb::class_<FileIo>(
      module, "FileIo",
      "Memory to and from files. Memory is given as addresses; `owner` is kept until "
      "the operation is done.")
      .def(nb::new_(&open_file_io), "block_bytes"_a, "queue_depth"_a, "threads"_a, "engine"_a,
           "direct"_a)
      .def(
          "read",
          [](FileIo& io, const nb::bytes& path, uint64_t offset, uint64_t address, uint64_t nbytes,
             nb::object owner) {
            return start(io, false, path, offset, address, nbytes, std::move(owner));
          },
          "path"_a, "offset"_a, "address"_a, "nbytes"_a, "owner"_a = nb::none())
      .def(
          "write",
          [](FileIo& io, const nb::bytes& path, uint64_t offset, uint64_t address, uint64_t nbytes,
             nb::object owner) {
            return start(io, true, path, offset, address, nbytes, std::move(owner));
          },
          "path"_a, "offset"_a, "address"_a, "nbytes"_a, "owner"_a = nb::none())
      .def("close", &FileIo::close, nb::call_guard<nb::gil_scoped_release>(),
           "Waits for everything in flight; may be repeated.")
      .def_prop_ro("engine", &FileIo::engine_name)
      .def_prop_ro("why", &FileIo::why, "Why it is this engine.")
      .def_prop_ro("unregistered", &FileIo::unregistered, "Why staging memory is; or empty.")
      .def_prop_ro("staging_bytes", &FileIo::staging_bytes)
      .def_prop_ro("descriptors_per_operation", &FileIo::descriptors_per_operation);

  static PyType_Slot pinned_slots[] = {
      {Py_bf_getbuffer, reinterpret_cast<void*>(&PinnedMemory::get_buffer)}, {0, nullptr}};
  nb::class_<PinnedMemory>(
      module, "PinnedMemory", nb::type_slots(pinned_slots),
      "Page-aligned memory in huge pages for this FileIo, as a writable buffer.")
      .def(nb::init<FileIo&, uint64_t>(), "io"_a, "nbytes"_a, nb::keep_alive<1, 2>());

  module.def("xxh3_64", &sum_of, "buffer"_a, "The XXH3-64 of its bytes.");
}

}  // namespace zoffload
