// One flag of a command, without the parser behind it: that library is all in its headers, and in
// every file that saw them it would take longer to compile than the file itself.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace zoffload::bench {

// What may be said of a flag that was added.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}
  Flag& group(const std::string& title);         // its heading in --help
  Flag& type_name(const std::string& name);      // what its value is: "FILE"
  Flag& default_text(const std::string& value);  // as --help shows it
  Flag& required();
  Flag& excludes(const std::string& other);  // a flag that was added before: not both
  Flag& comma_list();                        // of texts: "a,b"

 private:
  CLI::Option* option_;  // the parser's
};

// Every variable and function outlives `app`. A name without dashes is that of an argument.
Flag add_flag(CLI::App& app, const std::string& name, bool& value, const std::string& meaning);
Flag add_flag(CLI::App& app, const std::string& name, std::function<void()> take,
              const std::string& meaning);
Flag add_text(CLI::App& app, const std::string& name, std::string& value,
              const std::string& meaning);
Flag add_text(CLI::App& app, const std::string& name,
              std::function<Status(const std::string&)> take, const std::string& meaning);
Flag add_texts(CLI::App& app, const std::string& name, std::vector<std::string>& values,
               const std::string& meaning);
Flag add_texts(CLI::App& app, const std::string& name,
               std::function<Status(const std::vector<std::string>&)> take,
               const std::string& meaning);

// Calls `take` when all flags of `app` are read; not if another command is chosen.
void when_parsed(CLI::App& app, std::function<void()> take);

// A flag whose text `parse` turns into `value`; `shown` is the default as --help shows it.
template <typename T>
Flag add_parsed(CLI::App& app, const std::string& name, T& value,
                zoffload::Result<T> (*parse)(std::string_view), const std::string& type,
                const std::string& shown, const std::string& meaning) {
  const auto take = [&value, parse](const std::string& text) -> Status {
    ZO_ASSIGN_OR_RETURN(value, parse(text));
    return Status();
  };
  const std::string text = shown.empty() ? meaning : meaning + " [" + shown + "]";
  return add_text(app, name, take, text).type_name(type);
}

}  // namespace zoffload::bench
