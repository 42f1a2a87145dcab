#include "bench/peer.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/quantity.h"

namespace zoffload::bench {
namespace {

using Json = nlohmann::json;

Status missing(const std::string& library, const std::string& python, const std::string& module) {
  return Status(Code::kUnsupported, "--compare " + library + ": " + python + " has no module " +
                                        module + "; " + python + " -m pip install " + module +
                                        ", or name another Python with --python");
}

}  // namespace

zoffload::Result<std::unique_ptr<PeerFolder>> PeerFolder::make(const std::string& path) {
  std::string folder = path + "/zoffload-compare-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return Status::from_errno(errno, folder);
  return std::unique_ptr<PeerFolder>(new PeerFolder(std::move(folder)));
}

PeerFolder::~PeerFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

zoffload::Result<std::unique_ptr<Peer>> Peer::start(const std::string& library,
                                                    const std::string& python,
                                                    const PeerSetup& setup,
                                                    const Stopped& stopped) {
  std::unique_ptr<Peer> peer(new Peer(library));
  if (!setup.path.empty()) {
    ZO_ASSIGN_OR_RETURN(peer->folder_, PeerFolder::make(setup.path));
  }
  const Json request = {{"library", library},
                        {"numel", setup.numel},
                        {"threads", setup.threads},
                        {"folder", peer->folder_ ? peer->folder_->path() : ""},
                        {"block_bytes", setup.block_bytes},
                        {"queue_depth", setup.queue_depth}};
  auto child = LineChild::start({python, "-c", compare_worker(), request.dump()});
  if (!child.ok()) return child.status().within("--python");
  peer->child_ = std::move(*child);
  const auto line = peer->child_->receive(stopped);
  if (!line.ok()) return line.status().within("--compare " + library + " with " + python);
  if (line->empty()) return peer;
  const Json answer = Json::parse(*line);
  if (answer.contains("missing")) return missing(library, python, answer["missing"]);
  peer->version_ = answer["version"];
  peer->numel_ = answer["numel"];
  for (const Json& one : answer["variants"]) {
    peer->variants_.push_back({one["name"], one["norm"], one["bytes_per_parameter"]});
  }
  return peer;
}

zoffload::Result<double> Peer::step(size_t variant, const Stopped& stopped) {
  child_->send(std::to_string(variant));  // if it has ended, receive() says so
  const auto line = child_->receive(stopped);
  if (!line.ok()) return line.status().within("--compare " + library_);
  if (line->empty()) return 0.0;
  return Json::parse(*line)["seconds"].get<double>();
}

zoffload::Result<std::vector<std::string>> parse_peers(std::string_view text) {
  return parse_list<std::string>(text, [](std::string_view name) -> zoffload::Result<std::string> {
    if (name == "torch" || name == "deepspeed") return std::string(name);
    return Status(Code::kInvalidArgument,
                  "'" + std::string(name) + "' is none of torch, deepspeed");
  });
}

std::string default_python() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto python = program.parent_path() / "python";
  return std::filesystem::exists(python, ignored) ? python.string() : "python3";
}

}  // namespace zoffload::bench
