// A made-up machine: a folder with the few files of /proc and /sys that a test is about. It never
// writes outside of that folder.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "tests/conformance/io_queue_helpers.h"

namespace zoffload::test {

class FakeRoot {
 public:
  using Files = std::initializer_list<std::pair<const char*, const char*>>;

  explicit FakeRoot(Files files = {}) {
    for (const auto& [file, text] : files) write(file, text);
  }

  std::string path() const { return folder_.path(); }

  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = inside(file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
    ZO_CHECK(std::filesystem::exists(path));
  }

  // Several files of one folder.
  void write(const std::string& folder, Files files) {
    for (const auto& [file, text] : files) write(folder + "/" + file, text);
  }

  // A link at `from`, instead of what was there, to the folder `to`; relative as in sysfs, so that
  // it stays inside.
  void link(const std::string& from, const std::string& to) {
    const std::filesystem::path link = inside(from);
    const std::filesystem::path target = inside(to);
    std::filesystem::create_directories(link.parent_path());
    std::filesystem::create_directories(target);
    std::filesystem::remove(link);
    std::filesystem::create_symlink(std::filesystem::relative(target, link.parent_path()), link);
  }

  // A block device whose own folder is sys/devices/`folder`, in the places where it is looked up.
  void add_block_device(const std::string& numbers, const std::string& folder) {
    const std::string device = "sys/devices/" + folder;
    const std::string name = std::filesystem::path(folder).filename();
    link("sys/dev/block/" + numbers, device);
    link("sys/class/block/" + name, device);
  }

 private:
  // The names are those of the real system's files: one that led out would change the machine, and
  // an absolute one does, because `folder / "/etc/x"` is "/etc/x".
  std::filesystem::path inside(const std::string& file) const {
    const std::filesystem::path root = std::filesystem::canonical(folder_.path());
    ZO_CHECK(!file.empty());
    ZO_CHECK(std::filesystem::path(file).is_relative());
    const std::filesystem::path path = std::filesystem::weakly_canonical(root / file);
    const auto differ = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
    ZO_CHECK(differ.first == root.end());
    return root / file;
  }

  const TempFolder folder_;
};

}  // namespace zoffload::test
