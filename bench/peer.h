// Another library's optimizer, in a process of its own with the Python that the user names, so that
// its steps and ours take turns in one run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/line_child.h"

namespace zoffload::bench {

const char* compare_worker();  // the text of compare_worker.py

struct PeerSetup {
  uint64_t numel = 0;
  uint32_t threads = 1;
  std::string path = {};  // of the drive that is to hold the state; empty: memory holds it
  uint64_t block_bytes = 0;
  uint32_t queue_depth = 0;
};

// A new folder below `path`, which goes with all that is in it.
class PeerFolder {
 public:
  static zoffload::Result<std::unique_ptr<PeerFolder>> make(const std::string& path);
  ~PeerFolder();
  PeerFolder(const PeerFolder&) = delete;
  PeerFolder& operator=(const PeerFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit PeerFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

class Peer {
 public:
  struct Variant {
    std::string name;
    bool norm = false;  // with the norm, finite check and unscale
    double bytes_per_parameter = 0;
  };

  // `library` is "torch" or "deepspeed". kUnsupported, with what to install, where it is missing.
  static zoffload::Result<std::unique_ptr<Peer>> start(const std::string& library,
                                                       const std::string& python,
                                                       const PeerSetup& setup,
                                                       const Stopped& stopped);
  static uint64_t memory_bytes(const PeerSetup& setup) { return 24 * setup.numel; }
  // On the drive; a step writes as many: the state, and the gradients before it.
  static uint64_t file_bytes(const PeerSetup& setup) { return 16 * setup.numel; }

  const std::string& library() const { return library_; }
  const std::string& version() const { return version_; }
  const std::vector<Variant>& variants() const { return variants_; }  // none: it was stopped
  uint64_t numel() const { return numel_; }  // about as many as were asked for

  // One step; its seconds. 0 once `stopped`.
  zoffload::Result<double> step(size_t variant, const Stopped& stopped);

 private:
  explicit Peer(std::string library) : library_(std::move(library)) {}

  std::string library_;
  std::string version_;
  uint64_t numel_ = 0;
  std::vector<Variant> variants_;
  std::unique_ptr<PeerFolder> folder_;
  std::unique_ptr<LineChild> child_;  // goes before its folder
};

// "torch", "deepspeed" or both.
zoffload::Result<std::vector<std::string>> parse_peers(std::string_view text);

// The Python in the program's own folder, where it is installed with a package; else PATH's.
std::string default_python();

}  // namespace zoffload::bench
