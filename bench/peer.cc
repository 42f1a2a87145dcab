#include "bench/peer.h"

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

zoffload::Result<std::unique_ptr<Peer>> Peer::start(const std::string& library,
                                                    const std::string& python,
                                                    const PeerSetup& setup,
                                                    const Stopped& stopped) {
  std::unique_ptr<Peer> peer(new Peer(library));
  auto child = LineChild::start({python, "-c", compare_worker(), library,
                                 std::to_string(setup.numel), std::to_string(setup.threads)});
  if (!child.ok()) return child.status().within("--python");
  peer->child_ = std::move(*child);
  const auto line = peer->child_->receive(stopped);
  if (!line.ok()) return line.status().within("--compare " + library + " with " + python);
  if (line->empty()) return peer;
  const Json answer = Json::parse(*line);
  if (answer.contains("missing")) return missing(library, python, answer["missing"]);
  peer->version_ = answer["version"];
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
