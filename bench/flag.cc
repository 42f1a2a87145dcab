#include "bench/flag.h"

#include <CLI/CLI.hpp>

namespace zoffload::bench {
namespace {

// The parser's own way to say that a value cannot be read.
void require(const std::string& name, const Status& taken) {
  if (!taken.ok()) throw CLI::ValidationError(name, taken.message());
}

}  // namespace

Flag& Flag::group(const std::string& title) {
  option_->group(title);
  return *this;
}

Flag& Flag::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Flag& Flag::default_text(const std::string& value) {
  option_->default_str(value);
  return *this;
}

Flag& Flag::required() {
  option_->required();
  return *this;
}

Flag& Flag::excludes(const std::string& other) {
  option_->excludes(other);
  return *this;
}

Flag& Flag::comma_list() {
  option_->delimiter(',')->allow_extra_args(false);
  return *this;
}

Flag add_flag(CLI::App& app, const std::string& name, bool& value, const std::string& meaning) {
  return Flag(app.add_flag(name, value, meaning));
}

Flag add_flag(CLI::App& app, const std::string& name, std::function<void()> take,
              const std::string& meaning) {
  return Flag(app.add_flag_callback(name, std::move(take), meaning));
}

Flag add_text(CLI::App& app, const std::string& name, std::string& value,
              const std::string& meaning) {
  return Flag(app.add_option(name, value, meaning));
}

Flag add_text(CLI::App& app, const std::string& name,
              std::function<Status(const std::string&)> take, const std::string& meaning) {
  const auto checked = [name, take](const std::string& text) { require(name, take(text)); };
  return Flag(app.add_option_function<std::string>(name, checked, meaning));
}

Flag add_texts(CLI::App& app, const std::string& name, std::vector<std::string>& values,
               const std::string& meaning) {
  return Flag(app.add_option(name, values, meaning));
}

Flag add_texts(CLI::App& app, const std::string& name,
               std::function<Status(const std::vector<std::string>&)> take,
               const std::string& meaning) {
  using Texts = std::vector<std::string>;
  const auto checked = [name, take](const Texts& texts) { require(name, take(texts)); };
  return Flag(app.add_option_function<Texts>(name, checked, meaning));
}

void when_parsed(CLI::App& app, std::function<void()> take) {
  app.parse_complete_callback(std::move(take));
}

}  // namespace zoffload::bench
